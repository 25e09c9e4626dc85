// A launch as a trace of chrome://tracing and Perfetto.
#pragma once

#include <string>

#include "runtime/profile/timeline.h"

namespace maco::runtime {

/// A JSON array of events, with times in microseconds since the launch's first stamp. pid: the
/// rank; tid: 2 x the SM for its tasks, one more for its loader. Each task that runs has a slice
/// "wait" if it waits for anything, one with the op's name, and one for its loader if pages are
/// filled for it. Each wait has a flow arrow, from the last task that signalled to the work that
/// could then begin. A first entry names the graph, target, board and Program (ir::text_hash). A
/// packet's arrow ends with the work, as the flag is in the data.
std::string chrome_trace(const Timeline& timeline);

}  // namespace maco::runtime
