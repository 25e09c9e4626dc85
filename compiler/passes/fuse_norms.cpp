// fuse_norms.cpp: an rmsnorm whose result only matmuls of few rows read becomes part of them: each
// of their tasks norms the rows for itself, which takes less time than to wait for another task
// that did.
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
      : graph_(graph), context_(context), constraints_(graph), readers_(graph.tensors.size()) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      for (TensorId t : graph.ops[i].in) readers_[index(t)].push_back(i);
  }

  void run() {
    std::vector<bool> dead(graph_.ops.size(), false);
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (graph_.ops[i].kind != "rmsnorm") continue;
      const std::string why = refuse(i);
      if (!why.empty()) {
        context_.fused(fmt::format("rmsnorm stays: {}", why), graph_.ops[i].name);
        continue;
      }
      context_.fused("rmsnorm in the matmuls that read it", graph_.ops[i].name);
      fold(i);
      dead[i] = true;
    }
    context_.statistics["ops fused away"] += std::count(dead.begin(), dead.end(), true);
    erase_ops(graph_, dead);
  }

 private:
  // Why it can't be part of what reads it, or "".
  std::string refuse(size_t i) const {
    const Op& norm = graph_.ops[i];
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
  // The inputs of a matmul are a, b, the other b of a pair, the norm's weights.
  void fold(size_t i) {
    const Op& norm = graph_.ops[i];
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
  std::vector<std::vector<size_t>> readers_;  // by tensor: ops, ascending
};

}  // namespace

bool fuse_norms(ir::Graph& graph, PassContext& context) {
  if (!roles_name_ops(graph) && !graph.pipeline) NormFuser(graph, context).run();
  return true;
}

}  // namespace maco::passes
