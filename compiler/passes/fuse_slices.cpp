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
      : graph_(graph), context_(context), constraints_(graph), readers_(graph.tensors.size()) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      for (TensorId t : graph.ops[i].in) readers_[index(t)].push_back(i);
  }

  void run() {
    std::vector<bool> dead(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (graph_.ops[i].kind != "slice") continue;
      const std::string why = refuse(graph_.ops[i]);
      if (!why.empty()) {
        context_.fused(fmt::format("slice stays: {}", why), graph_.ops[i].name);
        continue;
      }
      context_.fused("slice in the ops that read it", graph_.ops[i].name);
      fold(graph_.ops[i]);
      dead[i] = true;
    }
    context_.statistics["ops fused away"] += std::count(dead.begin(), dead.end(), true);
    erase_ops(graph_, dead);
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
  std::vector<std::vector<size_t>> readers_;  // by tensor: ops, ascending
};

}  // namespace

bool fuse_slices(ir::Graph& graph, PassContext& context) {
  if (!roles_name_ops(graph) && !graph.pipeline) SliceFuser(graph, context).run();
  return true;
}

}  // namespace maco::passes
