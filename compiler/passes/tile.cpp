// tile.cpp: from what to how. Each op is cut into tasks by its own rule (compiler/ops), in an order
// in which every dependency points forward. Orders that no data gives (after, phases, regions,
// overlap, barrier) become Task::after.

#include "compiler/ops/tile.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/op.h"
#include "compiler/passes/order.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/symmetric.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

ir::BufferKind kind_of(ir::TensorKind kind) {
  switch (kind) {
    case ir::TensorKind::Input: return ir::BufferKind::Input;
    case ir::TensorKind::Param: return ir::BufferKind::Param;
    case ir::TensorKind::State: return ir::BufferKind::State;
    case ir::TensorKind::Output: return ir::BufferKind::Output;
    default: return ir::BufferKind::Temp;
  }
}

ir::Buffer buffer_of(const ir::Graph& graph, const ir::Tensor& t) {
  ir::Buffer b;
  b.name = t.name;
  b.tensor = t.name;
  b.kind = kind_of(t.kind);
  b.dtype = t.dtype;
  const bool vector = t.shape.size() == 1;
  ir::Expr rows(1);
  if (!vector || !t.shape[0].is_constant())
    for (size_t a = 0; a + (vector ? 0 : 1) < t.shape.size(); ++a)
      rows = ir::canonical(rows * t.shape[a]);
  b.rows = rows;
  const auto range = ir::bounds(rows, [&](std::string_view n) { return graph.range_of(n); });
  MACO_CHECK(range, rows.str());
  b.max_rows = range->hi;
  const ir::Expr& last = t.shape.back();
  b.cols = last.is_constant() ? *last.constant() : 1;
  return b;
}

void set_roles(const ir::Graph& graph, ir::Program& program) {
  const auto& roles = std::get<ir::Roles>(graph.sm_roles.value);
  for (const ir::RoleRange& r : std::get<std::vector<ir::RoleRange>>(roles)) {
    if (r.begin >= r.end) continue;
    ir::RoleSpan span;
    span.role = r.role == "comm" ? ir::Role::Comm : ir::Role::Compute;
    span.begin = static_cast<int32_t>(r.begin);
    span.end = static_cast<int32_t>(r.end);
    span.ops = r.tasks;
    program.roles.push_back(std::move(span));
    program.ctas = std::max(program.ctas, static_cast<int32_t>(r.end));
  }
}

// A Program with the graph's tensors and no tasks; which buffer each tensor is.
std::vector<ir::BufferId> begin_program(const ir::Graph& graph, ir::Program& program,
                                        const PassContext& context) {
  program = {};
  program.name = graph.name;
  program.world = graph.world;
  program.target = context.machine.target;
  program.board = context.machine.board;
  std::vector<ir::BufferId> buffers(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const ir::Tensor& t = graph.tensors[i];
    if (t.kind == ir::TensorKind::Scalar || t.shape.empty()) continue;
    buffers[i] = ir::id_of<ir::BufferId>(program.buffers.size());
    program.buffers.push_back(buffer_of(graph, t));
  }
  return buffers;
}

}  // namespace

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
  set_roles(graph, program);

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
