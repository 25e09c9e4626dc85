#include "compiler/passes/fuse/uses.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/rowwise.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;
using ir::TensorKind;

Uses::Uses(const ir::Graph& graph)
    : constraints(graph), readers(graph.tensors.size()), writers(graph.tensors.size()) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (TensorId t : graph.ops[i].in) readers[index(t)].push_back(i);
    for (TensorId t : graph.ops[i].out) writers[index(t)].push_back(i);
    if (ops::runs_alone(graph, graph.ops[i])) fences.push_back(i);
  }
}

bool Uses::fence_between(size_t from, size_t to) const {
  const auto fence = std::upper_bound(fences.begin(), fences.end(), from);
  return fence != fences.end() && *fence < to;
}
bool Uses::is_fence(size_t op) const {
  return std::binary_search(fences.begin(), fences.end(), op);
}

std::string refuse_result(const ir::Graph& graph, const Op& op, TensorId from) {
  const ir::Tensor& y = graph[op.out[0]];
  if (y.kind != TensorKind::Temp) return "its result is declared";
  if (y.dtype != graph[from].dtype) return "its result is of another type";
  return "";
}

std::string refuse_op(const ir::Graph& graph, const Uses& uses, const Op& op) {
  if (uses.constraints.constrained(op)) return "a constraint concerns it";
  if (std::string why = refuse_result(graph, op, op.in[0]); !why.empty()) return why;
  for (TensorId t : op.in)
    if (graph[t].kind == TensorKind::State) return "it reads a state";
  return "";
}

std::string refuse_maker(const ir::Graph& graph, const Uses& uses, TensorId y, const char* verb,
                         const char* stage) {
  const size_t writer = uses.writer(y);
  if (graph[y].kind != TensorKind::Temp || writer == kNoWriter ||
      graph.ops[writer].kind != "matmul")
    return fmt::format("no product makes what it {}", verb);
  const Op& product = graph.ops[writer];
  if (uses.constraints.constrained(product)) return "a constraint concerns its product";
  if (product.attrs.count("activation") > 0 || product.attrs.count("epilogue") > 0 ||
      !ops::may_have_stage(product, stage))
    return "its product does something else behind the sums";
  if (is_cut(product)) return "its product has its tiles";
  if (ops::matmul_inputs(product).bias) return "its product has a bias";
  if (graph[y].shape.size() != 2) return "its product has more than two axes";
  return "";
}

bool is_cut(const Op& op) { return op.attrs.count("method") > 0 || op.attrs.count("tile") > 0; }
bool is_told_when(const Op& op) { return !op.after.empty() || op.phase.has_value(); }
bool overlaps_with_all(const ir::Graph& graph, const Op& op) {
  return op.overlap.value_or(graph.overlap) == ir::Overlap::Aggressive;
}

std::optional<int64_t> most_rows(const ir::Graph& graph, TensorId t) {
  const auto rows = ir::bounds(ops::leading(graph[t].shape),
                               [&](std::string_view name) { return graph.range_of(name); });
  return rows ? std::optional(rows->hi) : std::nullopt;
}

}  // namespace maco::passes
