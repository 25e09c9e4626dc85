// fuse_slices.cpp: columns of a matrix that only ropes and appends read are read where they are: a
// product of queries, keys and values needn't be taken apart.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/ops/movement.h"
#include "compiler/passes/graph_edit.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

class SliceFuser {
 public:
  SliceFuser(ir::Graph& graph, PassContext& context)
      : graph_(graph), context_(context), constraints_(graph), readers_(readers_of(graph)) {}

  void run() {
    fold_into_readers(graph_, context_,
                      {.kind = "slice",
                       .where = "ops",
                       .refuse = [&](const Op& op) { return refuse(op); },
                       .fold = [&](const Op& op) { fold(op); }});
  }

 private:
  // The operand that an op may read columns of.
  static bool takes_columns(const Op& op, TensorId t) {
    if (op.attrs.count("columns")) return false;
    const size_t at = op.kind == "kv_append" ? 1 : 0;
    return (op.kind == "rope" || op.kind == "kv_append") && op.in[at] == t &&
           std::count(op.in.begin(), op.in.end(), t) == 1;
  }

  // Why it can't be part of what reads it, or "".
  std::string refuse(const Op& slice) const {
    const TensorId x = slice.in[0], y = slice.out[0];
    if (constraints_.constrained(slice)) return "a constraint concerns it";
    if (graph_[y].kind != TensorKind::Temp) return "its result is declared";
    if (graph_[y].dtype != graph_[x].dtype) return "its result is of another type";
    if (graph_[x].kind == TensorKind::State) return "it reads a state";
    if (!ops::sliced_columns(graph_, slice)) return "it doesn't take columns side by side";
    for (size_t r : readers_[index(y)])
      if (!takes_columns(graph_.ops[r], y))
        return fmt::format("'{}' reads it, which isn't a rope or an append", graph_.ops[r].name);
    return "";
  }
  void fold(const Op& slice) {
    const ops::Columns columns = *ops::sliced_columns(graph_, slice);
    const TensorId x = slice.in[0], y = slice.out[0];
    for (size_t r : readers_[index(y)]) {
      Op& op = graph_.ops[r];
      std::replace(op.in.begin(), op.in.end(), y, x);
      op.attrs["first_column"] = {ir::Expr(columns.first), slice.loc};
      op.attrs["columns"] = {ir::Expr(columns.count), slice.loc};
    }
  }

  ir::Graph& graph_;
  PassContext& context_;
  const Constraints constraints_;
  const Readers readers_;
};

}  // namespace

bool fuse_slices(ir::Graph& graph, PassContext& context) {
  SliceFuser(graph, context).run();
  return true;
}

}  // namespace maco::passes
