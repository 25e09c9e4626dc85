#include "compiler/ops/by_rows.h"

#include <fmt/format.h>

#include "compiler/ops/attrs.h"

namespace maco::ops {

namespace {

std::string needs_all(const ir::Graph& graph, const ir::Op& op, size_t input) {
  return fmt::format("each row of its result needs all of '{}'", graph[op.in[input]].name);
}
// Refuses if an input other than `rows` is cut.
std::string refuse_others(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut,
                          size_t rows) {
  for (size_t i = 0; i < cut.size(); ++i)
    if (cut[i] && i != rows) return needs_all(graph, op, i);
  return "";
}

}  // namespace

std::string by_rows(const ir::Graph&, const ir::Op&, const std::vector<bool>&) { return ""; }

std::string by_elements(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut) {
  for (size_t i = 0; i < cut.size(); ++i)
    if (cut[i] && graph[op.in[i]].shape != graph[op.out[0]].shape) return needs_all(graph, op, i);
  return "";
}

std::string by_first_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut) {
  return refuse_others(graph, op, cut, 0);
}

std::string by_whole_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut) {
  const ir::Tensor& x = graph[op.in[0]];
  return x.shape.size() == 1 ? fmt::format("'{}' is one row", x.name)
                             : refuse_others(graph, op, cut, 0);
}

std::string by_last_rows(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut) {
  return refuse_others(graph, op, cut, cut.size() - 1);
}

std::string by_rows_of_axis(const ir::Graph& graph, const ir::Op& op, const std::vector<bool>&) {
  const auto rank = static_cast<int64_t>(graph[op.in[0]].shape.size());
  const int64_t axis = attr_expr(graph, op, "axis").value_or(ir::Expr(0)).constant().value_or(0);
  return axis == 0 || axis == -rank ? "it takes rows apart or puts them together" : "";
}

}  // namespace maco::ops
