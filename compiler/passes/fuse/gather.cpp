// gather: if a matmul's rows are gathered from the ranks tile by tile, the matmul
// begins with its own rank's rows, which are there first, while the others' rows arrive. (The tile
// pass puts the allgather's tasks among these tiles.)
#include <fmt/format.h>

#include <string>

#include "compiler/ops/collectives/push.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/begin_program.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/fuse/uses.h"

namespace maco::passes {

bool fold_gathers(ir::Graph& graph, PassContext& context) {
  ir::Program program;
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    ir::Op& op = graph.ops[i];
    if (op.kind != "matmul" || !ops::gather_of(graph, op)) continue;
    ir::Diagnostics unheard;
    const ops::TileContext product(graph, ir::id_of<ir::OpId>(i), program, context.machine, buffers,
                                   unheard);
    std::string why;
    if (is_cut(op))
      why = "it is cut already";
    else if (is_told_when(op) || !overlaps_with_all(graph, op))
      why = "a constraint says when it starts";
    else
      why = ops::refuse_to_gather(product);
    if (!why.empty()) {
      context.fused(fmt::format("not begun before all is gathered: {}", why), op.name);
      continue;
    }
    op.attrs["gathered"] = {true, op.loc};
    context.fused("begun with the own rows of what is gathered", op.name);
  }
  return true;
}

}  // namespace maco::passes
