// What passes over ir::Graph share: who defines and uses a tensor, which ops the user named in a
// constraint, and keeping the graph tidy after ops were added or removed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/ops/movement.h"
#include "compiler/passes/passes.h"
#include "ir/graph.h"

namespace maco::passes {

/// The constraints that name ops. Built once; what a pass adds later, ops or their names in regions
/// and stages, is not known to it.
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
  const std::set<int>& places(const ir::Op& op) const;

  std::set<std::string> awaited_;
  // By name of an op: regions (from 0) and stages (from -1 downwards) that name it.
  std::map<std::string, std::set<int>> places_;
};

/// Does the op write a state that `op` reads (itself excluded)?
bool writes_what_is_read(const ir::Graph& graph, const ir::Op& writer, const ir::Op& op);
/// True if no op may cross `op`: it is a barrier, or a collective that overlaps with nothing.
bool is_fence(const ir::Graph& graph, const ir::Op& op);

/// Does the user say which ops run on which SMs? Then each stays what it is called.
bool roles_name_ops(const ir::Graph& graph);
/// Where ranges of SMs name the kind `beside`, ops of `kind` may run, too.
void share_home(ir::Graph& graph, const std::string& beside, const std::string& kind);

/// Names that no op, or no tensor or dim, of a graph has: "h.value", or with a number behind it if
/// that is taken. What it gave is taken from then on.
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

/// By tensor: the ops that read it, ascending.
using Readers = std::vector<std::vector<size_t>>;
Readers readers_of(const ir::Graph& graph);

/// By tensor: the last op that writes it, or kNoWriter.
using Writers = std::vector<size_t>;
constexpr size_t kNoWriter = SIZE_MAX;
Writers writers_of(const ir::Graph& graph);

/// The columns that `op` reads of its operand `of`: those that its attributes name, or all.
ops::Columns columns_read(const ir::Graph& graph, const ir::Op& op, ir::TensorId of);
/// The value of an attribute that is a number known here, or `otherwise`.
int64_t constant_of(const ir::Graph& graph, const ir::Op& op, const char* attr, int64_t otherwise);

/// Why the op that makes `y` can't do more with its sums ("turns" them, "appends" them: `verb`), or
/// "": it isn't a product, or one that does something else behind them already (`done`: the
/// attribute of what it is to do), or one that the user says more about.
std::string refuse_maker(const ir::Graph& graph, const Constraints& constraints,
                         const Writers& writers, ir::TensorId y, const char* verb,
                         const char* done);

/// How `rope`, an op with no tensor of positions, turns the heads of its rows, wherever these lie;
/// what is left out is the default.
struct Turns {
  std::optional<ir::Expr> head_dim, position;
  int64_t rotary_dim = 0;
  double theta = 0, attention_factor = 1;
  bool interleaved = false;
  std::optional<ir::Attr> scaling;
  std::vector<ir::TensorId> given;  // cosines and sines, or frequencies, or none
  friend bool operator==(const Turns&, const Turns&) = default;
};
Turns turns_of(const ir::Graph& graph, const ir::Op& rope);

/// May `op` read columns of `x` in place of its operand `t`, no slower?
bool takes_columns(const ir::Graph& graph, const ir::Op& op, ir::TensorId t, ir::TensorId x,
                   ops::Columns columns);
/// Makes it do so.
void take_columns(ir::Op& op, ir::TensorId t, ir::TensorId x, ops::Columns columns, ir::Loc loc);

/// Folds ops of one kind into those that read them, or (`made_by`) into the one that makes what
/// they read. `refuse` says why an op stays, or ""; `fold` makes others do what it does, and it is
/// removed then. Reports each: "slice stays: ...", "slice in the `where` that read it", "rope in
/// the `where` before it". Nothing happens where roles or a pipeline name ops.
struct Folding {
  std::string kind, where;
  bool made_by = false;
  std::function<std::string(const ir::Op&)> refuse;
  std::function<void(const ir::Op&)> fold;
  /// Whether an op of the kind is looked at; null: all are.
  std::function<bool(const ir::Op&)> concerns = nullptr;
};
void fold_into_readers(ir::Graph& graph, PassContext& context, const Folding& folding);

/// Makes op `added` a member of every region and stage that names `name`, in front of it.
void join_places(ir::Graph& graph, const std::string& name, const std::string& added);

/// Removes the ops marked in `dead` (by index), their names in regions and stages, and temporaries
/// that nothing defines any more.
void erase_ops(ir::Graph& graph, const std::vector<bool>& dead);

}  // namespace maco::passes
