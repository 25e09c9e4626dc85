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

/// Whether `writer` writes a state that `op` reads (unless they are the same op).
bool writes_what_is_read(const ir::Graph& graph, const ir::Op& writer, const ir::Op& op);
/// Whether no op may cross `op`: it is a barrier, or a collective that overlaps with nothing.
bool is_fence(const ir::Graph& graph, const ir::Op& op);

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

/// By tensor: the ops that read it, ascending.
using Readers = std::vector<std::vector<size_t>>;
Readers readers_of(const ir::Graph& graph);

/// By tensor: the last op that writes it, or kNoWriter.
using Writers = std::vector<size_t>;
constexpr size_t kNoWriter = SIZE_MAX;
Writers writers_of(const ir::Graph& graph);

/// The columns that `op` reads of its operand `of`: those that its attributes name, or all.
ops::Columns columns_read(const ir::Graph& graph, const ir::Op& op, ir::TensorId of);
/// The value of an attribute, if it is a number known here; else `otherwise`.
int64_t constant_of(const ir::Graph& graph, const ir::Op& op, const char* attr, int64_t otherwise);

/// Why the op that makes `y` can't do more with its sums ("turns" them, "appends" them: `verb`), or
/// "". It may be no matmul, already do something else with its sums (`done`: the attribute of what
/// it is to do), or have constraints of the user's.
std::string refuse_maker(const ir::Graph& graph, const Constraints& constraints,
                         const Writers& writers, ir::TensorId y, const char* verb,
                         const char* done);

/// How `rope`, an op without a tensor of positions, rotates the heads of its rows, wherever these
/// lie. What is left out has its default.
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

/// Whether `op` may read columns of `x` in place of its operand `t`, and isn't slower then.
bool takes_columns(const ir::Graph& graph, const ir::Op& op, ir::TensorId t, ir::TensorId x,
                   ops::Columns columns);
/// Makes `op` read these columns.
void take_columns(ir::Op& op, ir::TensorId t, ir::TensorId x, ops::Columns columns, ir::Loc loc);

/// Folds ops of one kind into their readers or, with `made_by`, into the op that makes their
/// operand. `refuse` says why an op stays, or "". `fold` makes the other ops do its work, after
/// which it is removed. Reports each op: "slice stays: ...", "slice in the `where` that read it",
/// "rope in the `where` before it". Does nothing if roles or a pipeline name ops.
struct Folding {
  std::string kind, where;
  bool made_by = false;
  std::function<std::string(const ir::Op&)> refuse;
  std::function<void(const ir::Op&)> fold;
  /// Whether to look at an op of the kind; null: at all.
  std::function<bool(const ir::Op&)> concerns = nullptr;
};
void fold_into_readers(ir::Graph& graph, PassContext& context, const Folding& folding);

/// Makes op `added` a member of every region and stage that names `name`, before `name`.
void join_places(ir::Graph& graph, const std::string& name, const std::string& added);

/// Removes the ops marked in `dead` (by index), their names in regions and stages, and temporaries
/// that nothing defines any more.
void erase_ops(ir::Graph& graph, const std::vector<bool>& dead);

}  // namespace maco::passes
