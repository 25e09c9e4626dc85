// norm: an rmsnorm whose result only matmuls of few rows read becomes part of them. Each of their
// tasks norms the rows for itself, which takes less time than waiting for another task to do it.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "compiler/functions/matmul.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/fuse/fold.h"
#include "compiler/passes/fuse/rules.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;

namespace {

class Norms : public Fold {
 public:
  Norms(ir::Graph& graph, PassContext& context) : Fold(graph, context, "rmsnorm", "matmuls") {}

 private:
  std::string refuse(const Op& norm) override {
    if (std::string why = refuse_op(graph_, uses_, norm); !why.empty()) return why;
    const TensorId y = norm.out[0];
    const auto rows = most_rows(graph_, y);
    if (!rows || *rows > functions::kMostNormedRows)
      return fmt::format("it has more than {} rows", functions::kMostNormedRows);
    for (size_t r : readers(y)) {
      const Op& m = graph_.ops[r];
      if (m.kind != "matmul" || std::count(m.in.begin(), m.in.end(), y) != 1 || m.in[0] != y)
        return "something else than a matmul reads it";
      if (!ops::is_of_few_rows(graph_, m, context_.machine))
        return "a matmul that reads it isn't one of few rows";
      if (!ops::may_have_stage(m, "norm")) return "a matmul that reads it norms already";
    }
    return "";
  }
  void fold(const Op& norm) override {
    for (size_t r : readers(norm.out[0])) {
      Op& m = graph_.ops[r];
      m.in[0] = norm.in[0];
      ops::add_stage_inputs(m, "norm", {norm.in[1]}, norm.loc);
      m.attrs["norm_eps"] = {ops::attr_number(norm, "eps", 1e-6), norm.loc};
    }
  }
};

}  // namespace

bool fold_norms(ir::Graph& graph, PassContext& context) {
  Norms(graph, context).run();
  return true;
}

}  // namespace maco::passes
