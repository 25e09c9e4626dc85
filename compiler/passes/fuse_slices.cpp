// fuse_slices.cpp: columns of a matrix that only ropes, appends and attention (as queries) read are
// read in place, so that a matmul of queries, keys and values needn't be sliced.
#include <fmt/format.h>

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
  // Why the slice can't be part of its readers, or "".
  std::string refuse(const Op& slice) const {
    const TensorId x = slice.in[0], y = slice.out[0];
    if (constraints_.constrained(slice)) return "a constraint concerns it";
    if (graph_[y].kind != TensorKind::Temp) return "its result is declared";
    if (graph_[y].dtype != graph_[x].dtype) return "its result is of another type";
    if (graph_[x].kind == TensorKind::State) return "it reads a state";
    const auto columns = ops::sliced_columns(graph_, slice);
    if (!columns) return "it doesn't take columns side by side";
    for (size_t r : readers_[index(y)])
      if (!takes_columns(graph_, graph_.ops[r], y, x, *columns))
        return fmt::format(
            "'{}' reads it, which isn't a rope, an append, or an attention whose queries it is",
            graph_.ops[r].name);
    return "";
  }
  void fold(const Op& slice) {
    const ops::Columns columns = *ops::sliced_columns(graph_, slice);
    const TensorId x = slice.in[0], y = slice.out[0];
    for (size_t r : readers_[index(y)]) take_columns(graph_.ops[r], y, x, columns, slice.loc);
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
