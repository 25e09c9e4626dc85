// choose_tiles.cpp: writes how each op is cut into tasks as attributes of the op: `method`, if
// there are several ways to compute it, and `tile`, the extents of a task.
//
// What the graph says stays as it is, or is refused. The rest is what the op's own rule finds best
// by the cost model (compiler/ops), for at most as many rows as a microbatch has. The report names
// ops for which another dtype or shape would have a far faster method.

#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/begin_program.h"
#include "compiler/passes/microbatches.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

bool choose_tiles(ir::Graph& graph, PassContext& context) {
  ir::Program program;
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);
  const Microbatches microbatches(graph);
  bool ok = true;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!ops::has_choice(graph, graph.ops[i])) continue;
    ops::TileContext op(graph, ir::id_of<ir::OpId>(i), program, context.machine, buffers,
                        context.diagnostics);
    if (!op.check_cut()) {
      ok = false;
      continue;
    }
    ops::set_cut(graph.ops[i], ops::cut_of(graph.ops[i]).tile.empty()
                                   ? microbatches.within(op, op.cut())
                                   : op.cut());
    if (const ops::OpDef* def = ops::find_op(graph.ops[i].kind); def->slow)
      if (const std::string why = def->slow(op, op.cut()); !why.empty())
        context.fused(why, graph.ops[i].name);
  }
  return ok;
}

bool has_tiles(const ir::Graph& graph) {
  for (const ir::Op& op : graph.ops)
    if (ops::has_choice(graph, op) && ops::cut_of(op).tile.empty()) return false;
  return true;
}

}  // namespace maco::passes
