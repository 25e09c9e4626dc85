// tile.cpp: from what to how. Each op is cut into tasks by its own rule (compiler/ops), in an order
// in which every dependency points forward. Orders that no data gives (after, phases, regions,
// overlap, barrier) become Task::after.

#include "compiler/ops/tile.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/op.h"
#include "compiler/passes/begin_program.h"
#include "compiler/passes/order.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/symmetric.h"
#include "ir/check.h"

namespace maco::passes {

int64_t symmetric_bytes(const ir::Graph& graph, ir::OpId op, PassContext& context) {
  ir::Program program;
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);
  ir::Diagnostics unheard;  // what is wrong is said when the op is really tiled
  ops::TileContext tiles(graph, op, program, context.machine, buffers, unheard);
  try {
    ops::find_op(graph[op].kind)->tile(tiles);
  } catch (const ops::TileContext::TooManyTasks&) {
  }
  return place_slots(program);
}

bool tile(const ir::Graph& graph, ir::Program& program, PassContext& context) {
  const std::vector<ir::BufferId> buffers = begin_program(graph, program, context);

  OpOrder order;
  if (!order_ops(graph, order, context.diagnostics)) return false;
  struct Range {
    size_t begin = 0, end = 0;
  };
  std::vector<Range> calls(graph.ops.size());
  const int before = context.diagnostics.errors();
  for (ir::OpId id : order.linear) {
    const size_t first_task = program.tasks.size();
    calls[index(id)].begin = program.calls.size();
    ops::TileContext tiles(graph, id, program, context.machine, buffers, context.diagnostics);
    if (!tiles.check_cut()) return false;
    try {
      ops::find_op(graph[id].kind)->tile(tiles);
    } catch (const ops::TileContext::TooManyTasks&) {
      context.diagnostics.error(
          graph[id].loc, fmt::format("'{}' brings the graph to more than {} tasks", graph[id].kind,
                                     ops::TileContext::kMostTasks));
      return false;
    }
    calls[index(id)].end = program.calls.size();
    std::vector<ir::CallId> after;
    for (ir::OpId p : order.whole[index(id)])
      for (size_t c = calls[index(p)].begin; c < calls[index(p)].end; ++c)
        after.push_back(ir::id_of<ir::CallId>(c));
    for (size_t t = first_task; t < program.tasks.size(); ++t) program.tasks[t].after = after;
  }
  bool paged = false;
  for (ir::Call& call : program.calls)
    for (ir::Load& load : call.loads) {
      paged = true;
      load.ahead = load.ahead && context.load_ahead;
    }
  program.uses = cost::uses_of(context.machine, paged);
  program.limits = cost::limits_of(context.machine, context.available_sms);
  program.limits.symmetric_bytes = graph.comm_buffer_bytes;
  if (const auto key = graph.key_loc.find("comm_buffer_bytes"); key != graph.key_loc.end())
    program.limits.symmetric_loc = key->second;
  context.statistics["tasks"] = static_cast<int64_t>(program.tasks.size());
  return context.diagnostics.errors() == before;
}

}  // namespace maco::passes
