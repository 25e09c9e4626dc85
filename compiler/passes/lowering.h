// Is a Program what its graph says?
#pragma once

#include "compiler/passes/passes.h"
#include "ir/program.h"

namespace maco::passes {

/// Holds a Program against the graph that it carries: cuts the graph's ops into tasks once more and
/// compares buffers, calls, tasks, what they touch and what they come after. Addresses, events,
/// streams and the order between tasks are the verifier's to prove; loads may come later than they
/// could. Reports the first difference. A Program without a graph may call no device function that
/// there is: it is one about order only.
/// `tiled`: what `tile` made, if it was run just now; used if it was of the same graph.
bool check_lowering(const ir::Program& program, PassContext& context, const ir::Program* tiled);

}  // namespace maco::passes
