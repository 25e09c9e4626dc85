// epilogue: a matmul computes the elementwise ops behind it while its sums are in registers.
//
// All other operands have to be ready before the matmul starts anyway: waiting for more would cost
// more than a trip through memory saves. Of two matmuls with the same left operand that can't be a
// pair only the later one joins, and waits for the other's tiles; its tasks follow the other's
// anyway.
#include <algorithm>

#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/fuse/groups.h"
#include "compiler/passes/fuse/rules.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;

namespace {

// Whether `t` is the result of an earlier matmul with the left operand of op `m` and a method for
// many rows. Its tiles end before the tiles of `m` at the same place.
bool is_beside(const Groups& groups, TensorId t, size_t m) {
  const std::vector<size_t>& writers = groups.uses().writers[index(t)];
  if (writers.size() != 1 || writers[0] >= m) return false;
  const Op &other = groups.op(writers[0]), &own = groups.op(m);
  const Constraints& constraints = groups.uses().constraints;
  return other.kind == "matmul" && other.in[0] == own.in[0] && !constraints.constrained(other) &&
         !constraints.constrained(own) &&
         ops::is_by_many_rows(groups.graph(), own, groups.machine());
}

}  // namespace

void join_product(const Groups& groups, Group& group) {
  const ir::Graph& graph = groups.graph();
  if (!group.products.empty() || !ir::is_float(graph[groups.result(group)].dtype)) return;
  std::optional<size_t> best;
  const std::vector<TensorId> inputs = groups.operands(group);
  for (TensorId t : inputs) {
    const auto p = groups.movable_producer(group, t);
    if (!p || groups.op(*p).kind != "matmul") continue;
    const Op& m = groups.op(*p);
    if (m.attrs.count("epilogue") > 0 || !ops::matmul_stages_of(m).empty()) continue;
    // All tiles of the matmul read its own operands, so that the result must not overwrite them.
    bool fits = ir::is_float(graph[m.in[0]].dtype) && ir::is_float(graph[t].dtype) &&
                std::find(m.in.begin(), m.in.end(), groups.result(group)) == m.in.end();
    for (TensorId other : inputs)
      fits = fits &&
             (other == t || (ir::is_float(graph[other].dtype) &&
                             (groups.is_ready(other, *p, group) || is_beside(groups, other, *p))));
    if (fits && (!best || *p > *best)) best = p;
  }
  if (!best) return;
  group.products = {*best};
  group.product = groups.op(*best);
  group.what = "elementwise ops in the epilogue of a matmul";
}

}  // namespace maco::passes
