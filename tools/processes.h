// maco-run --processes: one process a rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/driver.h"

namespace maco::tools {

/// Starts this program once more for each of `ranks` ranks, with these arguments and in its
/// environment who it is (RANK, WORLD_SIZE, ...), and waits for all. The worst of their exit
/// statuses, having reported those that a signal ended; what ends this process ends them. Once one
/// has ended badly, the others have `grace_ms` to find out; when none is left but those that a
/// signal has stopped, they are ended.
int run_processes(int ranks, const std::vector<std::string>& arguments, uint64_t grace_ms,
                  const Console& console);

}  // namespace maco::tools
