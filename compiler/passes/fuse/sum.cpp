// sum: an elementwise op on a sum over ranks, mostly the addition of a residual, becomes
// part of the tasks that add up what a matmul has pushed. Otherwise the op would wait for these
// tasks, and its readers for the op.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compiler/ops/collectives/push.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/fuse/groups.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/fuse/uses.h"

namespace maco::passes {

using ir::BodyArg;
using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

class Sums {
 public:
  Sums(ir::Graph& graph, PassContext& context) : graph_(graph), context_(context), uses_(graph) {}

  void run() {
    std::vector<bool> dead(graph_.ops.size(), false);
    for (size_t i = 0; i + 1 < graph_.ops.size(); ++i) {
      const Op& sum = graph_.ops[i];
      if (!is_sum(sum) || !reads_it_alone(i + 1, sum.out[0])) continue;
      Op& next = graph_.ops[i + 1];
      if (const std::string why = refuse(sum, next); !why.empty()) {
        context_.fused("not in the sum before it: " + why, next.name);
        continue;
      }
      context_.fused("elementwise ops in the sum of what a product sends", next.name);
      next = fused(sum, next);
      dead[i] = true;
    }
    erase_ops(graph_, dead);
  }

 private:
  static bool is_sum(const Op& op) {
    return ops::is_one_shot_sum(op) && ops::moves_as_made(op) && !op.attrs.count("epilogue");
  }
  // Whether the op is elementwise and the only reader of `t`.
  bool reads_it_alone(size_t op, TensorId t) const {
    const auto& readers = uses_.readers[index(t)];
    return ops::is_elementwise(graph_.ops[op].kind) && !readers.empty() &&
           std::all_of(readers.begin(), readers.end(), [&](size_t r) { return r == op; });
  }
  std::string refuse(const Op& sum, const Op& next) const {
    const ir::Tensor& y = graph_[sum.out[0]];
    if (y.kind != TensorKind::Temp) return "the sum is declared";
    // Tiles of many rows are added up in vectors, and separate ops read them in vectors. That takes
    // less time from sixteen rows on (docs/notebook/communication.md).
    constexpr int64_t kMostRows = 8;
    const auto rows = most_rows(graph_, sum.out[0]);
    if (!rows || *rows > kMostRows ||
        !ops::is_of_few_rows(graph_, graph_[*ops::product_of(graph_, sum)], context_.machine))
      return "the product has many rows";
    if (uses_.constraints.awaited(sum) || !uses_.constraints.same(sum, next))
      return "a constraint concerns one of them";
    if (graph_[next.out[0]].kind == TensorKind::State) return "it writes a state";
    if (next.in.size() > kMostOperands) return "it has too many operands";
    for (const std::vector<TensorId>* ids : {&next.in, &next.out})
      for (TensorId t : *ids)
        if (!ir::is_float(graph_[t].dtype) || graph_[t].shape != y.shape)
          return "an operand isn't of floats or of the sum's shape";
    return "";
  }
  Op fused(const Op& sum, const Op& next) const {
    // The sum is rounded as the tensor would have been.
    ir::Body body;
    body.steps.push_back({"copy", {BodyArg::operand(0)}, graph_[sum.out[0]].dtype});
    std::map<TensorId, BodyArg> known = {{sum.out[0], BodyArg::step(0)}};
    Op op = next;
    op.kind = sum.kind;
    op.attrs = sum.attrs;
    op.in = sum.in;
    op.in_loc = sum.in_loc;
    op.loc = sum.loc;
    op.in_loc.resize(op.in.size(), op.loc);
    for (TensorId t : next.in) {
      if (!known.emplace(t, BodyArg::operand(static_cast<int>(op.in.size()))).second) continue;
      op.in.push_back(t);
      op.in_loc.push_back(next.loc);
    }
    ops::append_body(graph_, next, body, known);
    op.attrs["epilogue"] = {ir::print(body), next.loc};
    op.dtype = body.dtype();
    return op;
  }

  ir::Graph& graph_;
  PassContext& context_;
  const Uses uses_;
};

}  // namespace

bool fold_sums(ir::Graph& graph, PassContext& context) {
  Sums(graph, context).run();
  return true;
}

}  // namespace maco::passes
