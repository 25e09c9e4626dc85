// Whether a Program computes what its graph says.
#pragma once

#include "compiler/passes/passes.h"
#include "ir/program.h"

namespace maco::passes {

/// Checks a Program against the graph that it carries: cuts the graph's ops into tasks again, and
/// compares buffers, calls, tasks, what tasks touch and what they come after. The verifier proves
/// addresses, events, streams and the order between tasks. Loads may come later than they could.
/// Reports the first difference. A Program without a graph is one about order only, and may call no
/// existing device function. `tiled`: what `tile` has made, if it has just run; used if it was made
/// from the same graph.
bool check_lowering(const ir::Program& program, PassContext& context, const ir::Program* tiled);

}  // namespace maco::passes
