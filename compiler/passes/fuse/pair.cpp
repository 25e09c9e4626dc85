// pair: two matmuls with one left operand, whose results the same elementwise ops read, become one
// with these: each task has the same columns of both. It is done if the matmul's method takes
// pairs, and if all other operands are ready before the first of the two starts anyway.
#include <algorithm>

#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/fuse/groups.h"
#include "compiler/passes/fuse/rules.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;

namespace {

// Whether all other attributes have their defaults.
bool is_only_transposed(const Op& op) {
  return std::all_of(op.attrs.begin(), op.attrs.end(), [](const auto& attr) {
    const auto* word = std::get_if<std::string>(&attr.second.value);
    return attr.first == "transpose_b" || (attr.first == "activation" && word && *word == "none");
  });
}

bool may_pair(const Groups& groups, const Op& op) {
  const ir::Graph& graph = groups.graph();
  return op.kind == "matmul" && op.in.size() == 2 && ops::attr_flag(op, "transpose_b", false) &&
         is_only_transposed(op) && ir::is_float(graph[op.in[0]].dtype) &&
         ops::may_be_paired(graph, op, groups.machine());
}

}  // namespace

void join_pair(const Groups& groups, Group& group) {
  const ir::Graph& graph = groups.graph();
  const TensorId result = groups.result(group);
  if (!group.products.empty() || !ir::is_float(graph[result].dtype)) return;
  std::vector<size_t> pair;
  const std::vector<TensorId> inputs = groups.operands(group);
  for (TensorId t : inputs)
    if (const auto p = groups.movable_producer(group, t); p && may_pair(groups, groups.op(*p)))
      pair.push_back(*p);
  if (pair.size() != 2) return;
  const Op &a = groups.op(pair[0]), &b = groups.op(pair[1]);
  if (a.in[0] != b.in[0] || graph[a.in[1]].shape != graph[b.in[1]].shape ||
      graph[a.in[1]].dtype != graph[b.in[1]].dtype || graph[a.in[0]].kind == ir::TensorKind::State)
    return;
  // All tiles read the operands of both, so that the result must not overwrite them.
  if (a.in[1] == result || b.in[1] == result) return;
  for (TensorId t : inputs) {
    if (t == a.out[0] || t == b.out[0]) continue;
    if (!ir::is_float(graph[t].dtype) || !groups.is_ready(t, pair[0], group)) return;
  }
  group.products = pair;
  group.product = a;
  group.product.attrs["paired"] = {true, a.loc};
  group.product.in.push_back(b.in[1]);
  group.what = "two matmuls and the elementwise ops that join them";
}

}  // namespace maco::passes
