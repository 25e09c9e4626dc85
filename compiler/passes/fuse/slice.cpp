// slice: columns of a matrix that only ropes, appends and attention (as queries) read are read in
// place, so that a matmul of queries, keys and values needn't be sliced.
#include <fmt/format.h>

#include <string>

#include "compiler/ops/movement.h"
#include "compiler/passes/fuse/columns.h"
#include "compiler/passes/fuse/fold.h"
#include "compiler/passes/fuse/rules.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;

namespace {

class Slices : public Fold {
 public:
  Slices(ir::Graph& graph, PassContext& context) : Fold(graph, context, "slice", "ops") {}

 private:
  std::string refuse(const Op& slice) override {
    if (std::string why = refuse_op(graph_, uses_, slice); !why.empty()) return why;
    const TensorId x = slice.in[0], y = slice.out[0];
    const auto columns = ops::sliced_columns(graph_, slice);
    if (!columns) return "it doesn't take columns side by side";
    for (size_t r : readers(y))
      if (!takes_columns(graph_, graph_.ops[r], y, x, *columns))
        return fmt::format(
            "'{}' reads it, which isn't a rope, an append, or an attention whose queries it is",
            graph_.ops[r].name);
    return "";
  }
  void fold(const Op& slice) override {
    const ops::Columns columns = *ops::sliced_columns(graph_, slice);
    const TensorId x = slice.in[0], y = slice.out[0];
    for (size_t r : readers(y)) take_columns(graph_.ops[r], y, x, columns, slice.loc);
  }
};

}  // namespace

bool fold_slices(ir::Graph& graph, PassContext& context) {
  Slices(graph, context).run();
  return true;
}

}  // namespace maco::passes
