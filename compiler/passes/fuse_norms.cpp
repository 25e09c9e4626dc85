// fuse_norms.cpp: an rmsnorm whose result only matmuls of few rows read becomes part of them. Each
// of their tasks norms the rows for itself, which takes less time than waiting for another task to
// do it.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/functions/matmul.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/rowwise.h"
#include "compiler/passes/graph_edit.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

class NormFuser {
 public:
  NormFuser(ir::Graph& graph, PassContext& context)
      : graph_(graph), context_(context), constraints_(graph), readers_(readers_of(graph)) {}

  void run() {
    fold_into_readers(graph_, context_,
                      {.kind = "rmsnorm",
                       .where = "matmuls",
                       .refuse = [&](const Op& op) { return refuse(op); },
                       .fold = [&](const Op& op) { fold(op); }});
  }

 private:
  // Why the norm can't be part of its readers, or "".
  std::string refuse(const Op& norm) const {
    const TensorId y = norm.out[0];
    if (constraints_.constrained(norm)) return "a constraint concerns it";
    if (graph_[y].kind != TensorKind::Temp) return "its result is declared";
    if (graph_[y].dtype != graph_[norm.in[0]].dtype) return "its result is of another type";
    for (TensorId t : norm.in)
      if (graph_[t].kind == TensorKind::State) return "it reads a state";
    const auto rows = ir::bounds(ops::leading(graph_[y].shape),
                                 [&](std::string_view n) { return graph_.range_of(n); });
    if (!rows || rows->hi > functions::kMostNormedRows)
      return fmt::format("it has more than {} rows", functions::kMostNormedRows);
    for (size_t r : readers_[index(y)]) {
      const Op& m = graph_.ops[r];
      if (m.kind != "matmul" || std::count(m.in.begin(), m.in.end(), y) != 1 || m.in[0] != y)
        return "something else than a matmul reads it";
      if (m.attrs.count("norm_eps")) return "a matmul that reads it norms already";
      if (!ops::is_of_few_rows(graph_, m, context_.machine))
        return "a matmul that reads it isn't one of few rows";
    }
    return "";
  }
  // A matmul's inputs are a, b, the other b of a pair, the norm's weights.
  void fold(const Op& norm) {
    for (size_t r : readers_[index(norm.out[0])]) {
      Op& m = graph_.ops[r];
      const std::ptrdiff_t at = ops::attr_flag(m, "paired", false) ? 3 : 2;
      m.in[0] = norm.in[0];
      m.in.insert(m.in.begin() + at, norm.in[1]);
      m.in_loc.resize(m.in.size() - 1, m.loc);
      m.in_loc.insert(m.in_loc.begin() + at, norm.loc);
      m.attrs["norm_eps"] = {ops::attr_number(norm, "eps", 1e-6), norm.loc};
    }
  }

  ir::Graph& graph_;
  PassContext& context_;
  const Constraints constraints_;
  const Readers readers_;
};

}  // namespace

bool fuse_norms(ir::Graph& graph, PassContext& context) {
  NormFuser(graph, context).run();
  return true;
}

}  // namespace maco::passes
