// What passes over ir::Graph share: which ops the user named in a constraint, and keeping the graph
// tidy after ops were added or removed.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/passes/passes.h"
#include "ir/graph.h"

namespace maco::passes {

/// The constraints that name ops. Built once: ops, and their names in regions and stages, that a
/// pass adds later are not included.
class Constraints {
 public:
  explicit Constraints(const ir::Graph& graph);
  /// Whether some `after` names the op.
  bool awaited(const ir::Op& op) const { return awaited_.count(op.name) > 0; }
  /// Whether any constraint (after, phase, overlap, overlap_group, priority, region, pipeline)
  /// concerns the op, as its own attribute or by its name.
  bool constrained(const ir::Op& op) const;
  /// Whether both ops have the same constraints. An `after` of one that names the other doesn't
  /// count.
  bool same(const ir::Op& a, const ir::Op& b) const;

 private:
  const std::set<int>& places(const ir::Op& op) const;

  std::set<std::string> awaited_;
  // By the op's name: the regions (from 0) and stages (from -1 downwards) that name it.
  std::map<std::string, std::set<int>> places_;
};

/// Whether the user says which ops run on which SMs. Each op then keeps its kind.
bool roles_name_ops(const ir::Graph& graph);
/// Lets ops of `kind` run where ranges of SMs name the kind `beside`.
void share_home(ir::Graph& graph, const std::string& beside, const std::string& kind);

/// Makes names that no op, tensor or dim of a graph has: "h.value", with a number behind it if that
/// is taken. A name that was given counts as taken.
class FreshNames {
 public:
  explicit FreshNames(const ir::Graph& graph);
  std::string op(const std::string& base) { return fresh(ops_, base); }
  std::string tensor(const std::string& base) { return fresh(tensors_, base); }

 private:
  struct Taken {
    std::set<std::string> names;
    std::map<std::string, int> last;  // by base: the highest number given
  };
  static std::string fresh(Taken& taken, const std::string& base);
  Taken ops_, tensors_;
};

/// The value of an attribute, if it is a number known here; else `otherwise`.
int64_t constant_of(const ir::Graph& graph, const ir::Op& op, const char* attr, int64_t otherwise);

/// Makes op `added` a member of every region and stage that names `name`, before `name`.
void join_places(ir::Graph& graph, const std::string& name, const std::string& added);

/// Removes the ops marked in `dead` (by index), their names in regions and stages, and temporaries
/// that nothing defines any more.
void erase_ops(ir::Graph& graph, const std::vector<bool>& dead);

}  // namespace maco::passes
