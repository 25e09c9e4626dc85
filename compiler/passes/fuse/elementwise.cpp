// elementwise: an elementwise op takes up those that make its operands, and these in turn theirs.
#include "compiler/ops/elementwise.h"

#include "compiler/passes/fuse/groups.h"
#include "compiler/passes/fuse/rules.h"

namespace maco::passes {

namespace {

// Adds one op to the group. Returns false if there is none to add.
bool grow(const Groups& groups, Group& group) {
  for (size_t g : group.ops) {
    for (ir::TensorId t : groups.op(g).in) {
      const auto p = groups.movable_producer(group, t);
      if (!p || !ops::is_elementwise(groups.op(*p).kind)) continue;
      Group larger = group;
      larger.ops.insert(*p);
      if (groups.operands(larger).size() > kMostOperands || groups.steps(larger) > kMostSteps)
        continue;
      group = std::move(larger);
      return true;
    }
  }
  return false;
}

}  // namespace

void join_elementwise(const Groups& groups, Group& group) {
  while (grow(groups, group)) {
  }
}

}  // namespace maco::passes
