// What became of one op, as text for people.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/api/compile.h"
#include "compiler/api/trace_times.h"

namespace maco::api {

/// What became of the op that `name` means, by its own name or by a result's: with what the op was
/// fused, and with what not and why; its method, tiles, tasks and SMs; what the cost model
/// expects; for which ops it waits and why, and which ops wait for it; which waits were pruned and
/// why. `unpruned`: the Program behind the pass insert-sync. `measured`, if not null: the times of
/// a run of the same kernel (see other_kernel). Returns nothing, with the reason in `error`, if
/// there is no such op.
std::optional<std::string> explain_op(const Compiled& compiled, const ir::Program& unpruned,
                                      std::string_view name, const TraceTimes* measured,
                                      std::string& error);

}  // namespace maco::api
