// What passes over ir::Graph share: who defines and uses a tensor, which ops the user named in a
// constraint, and keeping the graph tidy after ops were added or removed.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace maco::passes {

/// The constraints that name ops. Built once; ops that a pass adds are not known to it.
class Constraints {
 public:
  explicit Constraints(const ir::Graph& graph);
  /// Is the op named in an `after`?
  bool awaited(const ir::Op& op) const { return awaited_.count(op.name) > 0; }
  /// Does any constraint (after, phase, overlap, overlap_group, priority, region, pipeline) concern
  /// the op, as its own attribute or by its name?
  bool constrained(const ir::Op& op) const;
  /// Do the same constraints hold for both, `after` excepted for those who wait for the op itself?
  bool same(const ir::Op& a, const ir::Op& b) const;

 private:
  std::set<int> places(
      const ir::Op& op) const;  // regions (from 0) and stages (from -1 downwards) that name it

  const ir::Graph& graph_;
  std::set<std::string> awaited_;
};

/// Does the op write a state that `op` reads (itself excluded)?
bool writes_what_is_read(const ir::Graph& graph, const ir::Op& writer, const ir::Op& op);
/// True if no op may cross `op`: it is a barrier, or a collective that overlaps with nothing.
bool is_fence(const ir::Graph& graph, const ir::Op& op);

/// "h.value", or with a number behind it if that is taken.
std::string fresh_op_name(const ir::Graph& graph, const std::string& base);
std::string fresh_tensor_name(const ir::Graph& graph, const std::string& base);

/// Makes op `added` a member of every region and stage that names `name`, in front of it.
void join_places(ir::Graph& graph, const std::string& name, const std::string& added);

/// Removes the ops marked in `dead` (by index), their names in regions and stages, and temporaries
/// that nothing defines any more.
void erase_ops(ir::Graph& graph, const std::vector<bool>& dead);

}  // namespace maco::passes
