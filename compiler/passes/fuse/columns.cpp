#include "compiler/passes/fuse/columns.h"

#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/rope.h"
#include "compiler/passes/graph_edit.h"

namespace maco::passes {

using ir::Op;

namespace {
// The index of the operand of which an op may read some columns in place of all.
size_t operand_of_columns(const Op& op) { return op.kind == "kv_append" ? 1 : 0; }
}  // namespace

ops::Columns columns_read(const ir::Graph& graph, const Op& op, ir::TensorId of) {
  const int64_t all = *graph[of].shape.back().constant();
  if (op.in[operand_of_columns(op)] != of || std::count(op.in.begin(), op.in.end(), of) != 1)
    return {0, all};
  const int64_t first = constant_of(graph, op, "first_column", 0);
  return {first, constant_of(graph, op, "columns", all - first)};
}

bool takes_columns(const ir::Graph& graph, const ir::Op& op, ir::TensorId t, ir::TensorId x,
                   ops::Columns columns) {
  const bool reads_rows = op.kind == "rope" || op.kind == "attention";
  if ((!reads_rows && op.kind != "kv_append") || op.attrs.count("columns") > 0 ||
      op.in[operand_of_columns(op)] != t || std::count(op.in.begin(), op.in.end(), t) != 1)
    return false;
  // Attention on tensor cores reads queries in whole vectors.
  constexpr int64_t kVector = 8;
  const int64_t all = graph[x].shape.back().constant().value_or(1);
  return op.kind != "attention" || columns.count % kVector != 0 ||
         (all % kVector == 0 && columns.first % kVector == 0);
}
void take_columns(ir::Op& op, ir::TensorId t, ir::TensorId x, ops::Columns columns, ir::Loc loc) {
  std::replace(op.in.begin(), op.in.end(), t, x);
  op.attrs["first_column"] = {ir::Expr(columns.first), loc};
  op.attrs["columns"] = {ir::Expr(columns.count), loc};
}

Turns turns_of(const ir::Graph& graph, const Op& rope) {
  Turns turns = {ops::attr_expr(graph, rope, "head_dim"),
                 ops::attr_expr(graph, rope, "position"),
                 ops::rotary_dim(graph, rope),
                 ops::attr_number(rope, "theta", 10000),
                 ops::attr_number(rope, "attention_factor", 1),
                 ops::attr_flag(rope, "interleaved", false),
                 {},
                 {}};
  if (const auto it = rope.attrs.find("scaling"); it != rope.attrs.end()) {
    turns.scaling = it->second;
    turns.scaling->loc = {};
  }
  const int first = rope.kind == "rope" ? ops::rope_inputs(rope).given() : 0;
  if (first > 0 || rope.kind == "rope_sines")
    turns.given.assign(rope.in.begin() + first, rope.in.end());
  return turns;
}

}  // namespace maco::passes
