// Sessions for a kernel.cu of several variants (ir/variants.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/host/session.h"

namespace maco::runtime {

using OpenSession = std::function<std::unique_ptr<Session>(
    const std::string& kernel, const SessionOptions& options, Status& status)>;

/// Opens `source` with `open`: its only kernel, or each of its variants. Variants share their
/// tensors; each has temporaries and symmetric memory of its own. A launch runs the first variant
/// whose condition holds for its dims and scalars, which must then be numbers, not in memory. It
/// first waits for what was enqueued for another variant. So a captured launch must be of the same
/// variant as the last launch, unless Session::wait was called. SessionOptions::profiled_tasks is
/// refused: variants have different tasks.
std::unique_ptr<Session> open_session(const std::string& source, const SessionOptions& options,
                                      const OpenSession& open, Status& status);

}  // namespace maco::runtime
