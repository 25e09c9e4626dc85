// prepare_operands.cpp: gives products and attention operands that lie in memory as loads want
// them, where the graph's don't:
//
// - Rows that aren't whole 16 bytes come element by element, which takes up to thirty times as long
//   as they would. They are copied first, with zeros behind each row; a b[K,N] is transposed on the
//   way. The zeros are multiplied with each other and change no sum.
// - Attention of many rows is quick for heads that boxes bring: of 64, 128 and, a little less so,
//   256. Others are copied to the next of these, with zeros behind each, and what they become back.
// - Of an operand a whose rows dims decide, a caller has only as many as the launch says, where
//   boxes bring as many as there may be. It is copied to a temporary, which has all.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "compiler/functions/attention.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/graph_edit.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

constexpr int64_t kRun = 16;  // bytes
// Elements of b from which on that pays: some 5 ns each, spread over SMs, for 3 us of a hand-over
// (docs/benchmarks/gpu-speed.md, "Single ops").
constexpr int64_t kLeast = 16384;

class Preparer {
 public:
  Preparer(ir::Graph& graph, PassContext& context)
      : graph_(graph), context_(context), constraints_(graph), names_(graph) {}

  void run() {
    std::vector<Op> ops;
    ops.swap(graph_.ops);
    for (Op& op : ops) {
      std::optional<Op> behind;
      if (op.kind == "matmul") prepare(op);
      if (op.kind == "attention") behind = prepare_heads(op);
      graph_.ops.push_back(std::move(op));
      if (behind) graph_.ops.push_back(std::move(*behind));
    }
  }

 private:
  int64_t extent(TensorId t, size_t axis) const { return *graph_[t].shape[axis].constant(); }

  void prepare(Op& product) {
    const TensorId a = product.in[0], b = product.in[1];
    const bool transposed = ops::attr_flag(product, "transpose_b", false);
    const int64_t K = *graph_[a].shape.back().constant(), N = extent(b, transposed ? 0 : 1);
    const int64_t chunk =
        kRun / std::min(ir::size_of(graph_[a].dtype), ir::size_of(graph_[b].dtype));
    const int64_t whole = (K + chunk - 1) / chunk * chunk;
    if ((K != whole || (!transposed && N % chunk != 0)) && K * N >= kLeast) {
      replace(product, 1, pad(product, b, whole, !transposed));
      if (!transposed) product.attrs["transpose_b"] = {true, product.loc};
      if (K != whole) replace(product, 0, pad(product, a, whole, false));
      context_.fused("operands copied to rows of whole 16 bytes", product.name);
    }
    if (ops::wants_all_rows(graph_, product, context_.machine)) {
      replace(product, 0, made("copy", product, product.in[0], graph_[product.in[0]].shape, {}));
      context_.fused("rows of a, which dims decide, copied to a temporary", product.name);
    }
  }
  static void replace(Op& product, size_t i, TensorId t) { product.in[i] = t; }

  // The heads that a task of many rows had better have in place of `head_dim`; 0: those.
  int64_t better_heads(const Op& attention, int64_t head_dim) const {
    const cost::Machine& machine = context_.machine;
    const ir::Tensor& q = graph_[attention.in[0]];
    const ir::DType type = q.dtype, result = graph_[attention.out[0]].dtype;
    if (type != graph_[attention.in[1]].dtype || type != graph_[attention.in[2]].dtype ||
        (result != type && result != ir::DType::F32) ||
        (type != ir::DType::BF16 && type != ir::DType::F16) || !machine.has_mma(type) ||
        attention.attrs.count("columns") > 0 || attention.attrs.count("first_column") > 0 ||
        constraints_.constrained(attention) || constraints_.awaited(attention))
      return 0;
    constexpr int64_t kWorthwhile = 64;  // rows of heads that share keys, as attention has it
    const auto rows = ir::bounds(q.shape[0], [&](auto name) { return graph_.range_of(name); });
    const int64_t group = extent(attention.in[0], 1) / extent(attention.in[1], 1);
    if (!rows || rows->hi <= functions::kStepRows || rows->hi * group < kWorthwhile) return 0;
    for (const int64_t whole : {64, 128, 256}) {
      if (head_dim == whole) return 0;
      if (head_dim > whole || !functions::takes_head(whole, machine.page_bytes)) continue;
      const bool by_groups = machine.has_wgmma() && whole <= functions::kMostHeadDim &&
                             result == type && graph_[attention.in[1]].shape[0].is_constant();
      return by_groups || !functions::takes_head(head_dim, machine.page_bytes) ? whole : 0;
    }
    return 0;
  }

  // Returns what becomes of its result, if it is to have other heads.
  std::optional<Op> prepare_heads(Op& attention) {
    const int64_t d = constant_of(graph_, attention, "head_dim", 1),
                  whole = better_heads(attention, d);
    if (whole == 0) return std::nullopt;
    for (size_t i = 0; i < 3; ++i)
      replace(attention, i, runs(attention, attention.in[i], d, whole));
    attention.attrs.try_emplace("scale",
                                ir::Attr{1 / std::sqrt(static_cast<double>(d)), attention.loc});
    attention.attrs["head_dim"] = {ir::Expr(whole), attention.loc};
    const TensorId y = attention.out[0];
    ir::Tensor heads;
    heads.name = names_.tensor(graph_[y].name + ".pad");
    heads.dtype = graph_[y].dtype;
    heads.shape = graph_[y].shape;
    heads.shape.back() = ir::Expr(extent(y, 1) / d * whole);
    heads.loc = graph_[y].loc;
    if (heads.dtype != graph_[attention.in[0]].dtype) attention.dtype = heads.dtype;
    Op back;
    back.kind = "pad";
    back.name = names_.op(attention.name + ".heads");
    back.named = true;
    back.attrs["columns"] = {ir::Expr(d), attention.loc};
    back.attrs["run"] = {ir::Expr(whole), attention.loc};
    back.loc = attention.loc;
    back.in = {ir::id_of<TensorId>(graph_.tensors.size())};
    back.in_loc = {attention.loc};
    back.out = {y};
    back.out_loc = attention.out_loc;
    attention.out = back.in;
    attention.named = true;
    graph_.tensors.push_back(std::move(heads));
    context_.fused(fmt::format("heads of {} copied to runs of {}", d, whole), attention.name);
    return back;
  }
  TensorId runs(const Op& attention, TensorId of, int64_t run, int64_t columns) {
    ir::Shape shape = graph_[of].shape;
    shape.back() = ir::Expr(extent(of, 1) / run * columns);
    std::map<std::string, ir::Attr> attrs;
    attrs["columns"] = {ir::Expr(columns), attention.loc};
    attrs["run"] = {ir::Expr(run), attention.loc};
    return made("pad", attention, of, shape, attrs);
  }

  TensorId pad(const Op& product, TensorId of, int64_t columns, bool turned) {
    ir::Shape shape = graph_[of].shape;
    if (turned) shape[0] = shape[1];
    shape.back() = ir::Expr(columns);
    std::map<std::string, ir::Attr> attrs;
    attrs["columns"] = {ir::Expr(columns), product.loc};
    if (turned) attrs["transposed"] = {true, product.loc};
    return made("pad", product, of, shape, attrs);
  }

  // What `kind` makes of `of`, for `product`: once for all products, but of a state, which may have
  // been written since, or where the user says when a product starts.
  TensorId made(const std::string& kind, const Op& product, TensorId of, const ir::Shape& shape,
                const std::map<std::string, ir::Attr>& attrs) {
    const auto number = [&](const char* attr) {
      const auto it = attrs.find(attr);
      return it == attrs.end() ? std::string() : std::get<ir::Expr>(it->second.value).str();
    };
    const auto key =
        std::make_tuple(of, kind, number("columns"), number("run"), attrs.count("transposed") > 0);
    const bool alone =
        graph_[of].kind == TensorKind::State || !product.after.empty() || product.phase;
    if (const auto known = made_.find(key); known != made_.end() && !alone) return known->second;
    ir::Tensor copy;
    copy.name = names_.tensor(graph_[of].name + "." + kind);
    copy.dtype = graph_[of].dtype;
    copy.shape = shape;
    copy.loc = graph_[of].loc;
    Op op;
    op.kind = kind;
    op.name = names_.op(copy.name);
    op.named = op.name != copy.name;
    op.attrs = attrs;
    op.after = product.after;
    op.phase = product.phase;
    op.priority = product.priority;
    op.loc = product.loc;
    op.in = {of};
    op.in_loc = {product.loc};
    op.out = {ir::id_of<TensorId>(graph_.tensors.size())};
    op.out_loc = {product.loc};
    join_places(graph_, product.name, op.name);
    graph_.tensors.push_back(std::move(copy));
    const TensorId result = op.out[0];
    if (!alone) made_[key] = result;
    graph_.ops.push_back(std::move(op));
    return result;
  }

  ir::Graph& graph_;
  PassContext& context_;
  const Constraints constraints_;
  FreshNames names_;
  // By what is copied and how: kind, columns, run, transposed.
  std::map<std::tuple<TensorId, std::string, std::string, std::string, bool>, TensorId> made_;
};

}  // namespace

bool prepare_operands(ir::Graph& graph, PassContext& context) {
  // Where roles or a pipeline name ops, each stays what it is called.
  if (!roles_name_ops(graph) && !graph.pipeline) Preparer(graph, context).run();
  return true;
}

}  // namespace maco::passes
