#include "compiler/passes/begin_program.h"

#include <algorithm>

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
  const auto range = ir::bounds(rows, [&](std::string_view n) { return graph.range_of(n); });
  MACO_CHECK(range, rows.str());
  // A dim may have only one value.
  b.rows = range->lo == range->hi ? ir::Expr(range->hi) : rows;
  b.max_rows = range->hi;
  const ir::Expr& last = t.shape.back();
  b.cols = last.is_constant() ? *last.constant() : 1;
  return b;
}

/// Tensors in the order in which the graph's text has them, whatever passes did to the graph.
std::vector<ir::TensorId> in_order(const ir::Graph& graph) {
  std::vector<ir::TensorId> list;
  std::vector<bool> defined(graph.tensors.size(), false), listed(graph.tensors.size(), false);
  const auto add = [&](size_t i) {
    if (!listed[i]) list.push_back(ir::id_of<ir::TensorId>(i));
    listed[i] = true;
  };
  for (const ir::Op& op : graph.ops)
    for (const ir::TensorId t : op.out) defined[index(t)] = graph[t].kind != ir::TensorKind::State;
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    if (!defined[i]) add(i);
  for (const ir::Op& op : graph.ops)
    for (const ir::TensorId t : op.out) add(index(t));
  return list;
}

void set_roles(const ir::Graph& graph, ir::Program& program) {
  const auto* roles =
      std::get_if<std::vector<ir::RoleRange>>(&std::get<ir::Roles>(graph.sm_roles.value));
  if (!roles) return;  // roles aren't chosen yet
  for (const ir::RoleRange& r : *roles) {
    if (r.begin >= r.end) continue;
    ir::CtaRange range;
    range.role = r.role == "comm" ? ir::Role::Comm : ir::Role::Compute;
    range.begin = static_cast<int32_t>(r.begin);
    range.end = static_cast<int32_t>(r.end);
    range.ops = r.tasks;
    program.roles.push_back(std::move(range));
    program.ctas = std::max(program.ctas, static_cast<int32_t>(r.end));
  }
}

}  // namespace

std::vector<ir::BufferId> begin_program(const ir::Graph& graph, ir::Program& program,
                                        const PassContext& context) {
  program = {};
  program.name = graph.name;
  program.world = graph.world;
  program.target = context.machine.target;
  program.board = context.machine.board;
  program.uses = cost::uses_of(context.machine, context.machine.pages);
  for (const ir::Dim& d : graph.dims)
    program.variables.push_back(
        {.name = d.name, .range = {.lo = d.min, .hi = d.max}, .typical = d.typical});
  std::vector<ir::BufferId> buffers(graph.tensors.size());
  for (const ir::TensorId id : in_order(graph)) {
    const ir::Tensor& t = graph[id];
    if (t.kind == ir::TensorKind::Scalar)
      program.variables.push_back({.name = t.name,
                                   .range = {.lo = t.range_lo, .hi = t.range_hi - 1},
                                   .scalar = true,
                                   .typical = t.typical});
    if (t.kind == ir::TensorKind::Scalar || t.shape.empty()) continue;
    buffers[index(id)] = ir::id_of<ir::BufferId>(program.buffers.size());
    program.buffers.push_back(buffer_of(graph, t));
  }
  set_roles(graph, program);
  return buffers;
}

}  // namespace maco::passes
