// prepare_operands.cpp: copies operands of matmuls and attention that don't lie in memory as loads
// want them.
//
// - Rows that aren't a multiple of 16 bytes come element by element, which takes up to thirty times
//   as long. They are copied first, with zeros behind each row; a b[K,N] is transposed on the way.
//   The zeros are multiplied by each other and change no sum.
// - Attention of many rows is fast for heads of whole chunks that fill pages. Other heads are
//   copied to longer ones, with zeros behind each, and the result is cut back.
// - If dims decide how many rows an operand a has, a caller provides only the launch's rows, but
//   boxes bring the maximum. The operand is copied to a temporary, which has all rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <optional>
#include <utility>
#include <vector>

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

constexpr int64_t kBytes = 16;  // that a load takes at once
// The size of the larger operand, in elements, from which copies pay: they cost the 3 us of a
// hand-off, and save some 5 ns an element, spread over SMs (docs/notebook/single-ops.md).
constexpr int64_t kLeast = 16384;

// How a tensor is copied: each row, each run of `run` elements of it or, if transposed, each column
// becomes `columns` long.
struct Copy {
  TensorId of{};
  int64_t columns = 0, run = 0;  // run 0: the whole row
  bool turned = false;
  friend auto operator<=>(const Copy&, const Copy&) = default;
};

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
  int64_t columns_in(TensorId t) const { return *graph_[t].shape.back().constant(); }

  void prepare(Op& product) {
    TensorId &a = product.in[0], &b = product.in[1];
    const bool transposed = ops::attr_flag(product, "transpose_b", false);
    const int64_t K = columns_in(a),
                  N = transposed ? *graph_[b].shape[0].constant() : columns_in(b);
    const int64_t elements = std::max(K * N, ir::max_elements(graph_, graph_[a].shape));
    const int64_t chunk =
        kBytes / std::min(ir::size_of(graph_[a].dtype), ir::size_of(graph_[b].dtype));
    const int64_t whole = (K + chunk - 1) / chunk * chunk;
    if ((K != whole || (!transposed && N % chunk != 0)) && elements >= kLeast) {
      b = made({.of = b, .columns = whole, .turned = !transposed}, product);
      if (!transposed) product.attrs["transpose_b"] = {true, product.loc};
      if (K != whole) a = made({.of = a, .columns = whole}, product);
      context_.fused("operands copied to rows of whole 16 bytes", product.name);
    }
    if (ops::wants_all_rows(graph_, product, context_.machine)) {
      a = made({.of = a, .columns = columns_in(a)}, product);
      context_.fused("rows of a, which dims decide, copied to a temporary", product.name);
    }
  }

  // The length of heads with which a task of many rows is faster than with `head_dim`; 0: no other.
  int64_t better_heads(const Op& attention, int64_t head_dim) const {
    const cost::Machine& machine = context_.machine;
    const ir::Tensor& q = graph_[attention.in[0]];
    const ir::DType type = q.dtype, result = graph_[attention.out[0]].dtype;
    const auto is_half = [](ir::DType t) { return t == ir::DType::BF16 || t == ir::DType::F16; };
    if (!is_half(type) || type != graph_[attention.in[1]].dtype ||
        type != graph_[attention.in[2]].dtype || (!is_half(result) && result != ir::DType::F32) ||
        !machine.has_mma(type) || attention.attrs.count("columns") > 0 ||
        attention.attrs.count("first_column") > 0)
      return 0;
    const auto rows = ir::bounds(q.shape[0], [&](auto name) { return graph_.range_of(name); });
    if (!rows || rows->hi <= functions::kStepRows) return 0;
    const int64_t typical =
        ir::typical_value(q.shape[0], [&](auto name) { return graph_.typical_of(name); }, *rows);
    const int64_t group = columns_in(attention.in[0]) / columns_in(attention.in[1]);
    if (typical * group < functions::kManyRows) return 0;
    int64_t whole = head_dim;
    while (whole <= functions::kMostHeadDim && !functions::takes_head(whole, machine.page_bytes))
      ++whole;
    return whole > head_dim && whole <= functions::kMostHeadDim ? whole : 0;
  }

  // Copies the attention's operands to longer heads, if these are faster. Returns the op that cuts
  // its result back.
  std::optional<Op> prepare_heads(Op& attention) {
    const int64_t d = constant_of(graph_, attention, "head_dim", 1),
                  whole = better_heads(attention, d);
    if (whole == 0) return std::nullopt;
    const std::vector<TensorId> given = attention.in;  // keys and values may be one tensor
    for (size_t i = 0; i < given.size(); ++i) {
      const auto known = std::find(given.begin(), given.end(), given[i]) - given.begin();
      attention.in[i] = static_cast<size_t>(known) < i
                            ? attention.in[static_cast<size_t>(known)]
                            : made({.of = given[i], .columns = whole, .run = d}, attention);
    }
    attention.attrs.try_emplace("scale",
                                ir::Attr{1 / std::sqrt(static_cast<double>(d)), attention.loc});
    attention.attrs["head_dim"] = {ir::Expr(whole), attention.loc};
    const TensorId y = attention.out[0];
    ir::Tensor heads;
    heads.name = names_.tensor(graph_[y].name + ".pad");
    heads.dtype = graph_[y].dtype;
    heads.shape = graph_[y].shape;
    heads.shape.back() = ir::Expr(columns_in(y) / d * whole);
    heads.loc = graph_[y].loc;
    if (heads.dtype != graph_[attention.in[0]].dtype) attention.dtype = heads.dtype;
    // The op that cuts the heads back ends last; it keeps the name, for which others may wait.
    Op back;
    back.kind = "pad";
    back.name = attention.name;
    back.named = attention.named;
    back.attrs["columns"] = {ir::Expr(d), attention.loc};
    back.attrs["run"] = {ir::Expr(whole), attention.loc};
    obey(back, attention);
    back.in = {ir::id_of<TensorId>(graph_.tensors.size())};
    back.in_loc = {attention.loc};
    back.out = {y};
    back.out_loc = attention.out_loc;
    attention.name = names_.op(attention.name + ".heads");
    join_places(graph_, back.name, attention.name);
    attention.out = back.in;
    attention.named = true;
    graph_.tensors.push_back(std::move(heads));
    context_.fused(fmt::format("heads of {} copied to runs of {}", d, whole), back.name);
    return back;
  }

  // The user's constraints on one op hold for the other, too.
  static void obey(Op& op, const Op& other) {
    op.after = other.after;
    op.phase = other.phase;
    op.overlap = other.overlap;
    op.overlap_group = other.overlap_group;
    op.priority = other.priority;
    op.loc = other.loc;
  }

  // The result of such a copy, for `reader`. All readers share one copy, unless it is of a state,
  // which may have been written since, or the user has constraints on a reader.
  TensorId made(const Copy& copy, const Op& reader) {
    const ir::Tensor& from = graph_[copy.of];
    const bool alone = from.kind == TensorKind::State || constraints_.constrained(reader);
    if (const auto known = made_.find(copy); known != made_.end() && !alone) return known->second;
    Op op;
    op.kind = "pad";
    ir::Tensor to;
    to.name = names_.tensor(from.name + ".pad");
    to.dtype = from.dtype;
    to.shape = from.shape;
    to.loc = from.loc;
    if (copy.turned) to.shape[0] = to.shape[1];
    const int64_t runs = copy.run > 0 ? columns_in(copy.of) / copy.run : 1;
    to.shape.back() = ir::Expr(runs * copy.columns);
    op.attrs["columns"] = {ir::Expr(copy.columns), reader.loc};
    if (copy.run > 0) op.attrs["run"] = {ir::Expr(copy.run), reader.loc};
    if (copy.turned) op.attrs["transposed"] = {true, reader.loc};
    op.name = names_.op(to.name);
    op.named = op.name != to.name;
    obey(op, reader);
    op.in = {copy.of};
    op.in_loc = {reader.loc};
    op.out = {ir::id_of<TensorId>(graph_.tensors.size())};
    op.out_loc = {reader.loc};
    join_places(graph_, reader.name, op.name);
    // The copy runs where its reader may, so that roles don't decide how the reader sums.
    share_home(graph_, reader.kind, op.kind);
    graph_.tensors.push_back(std::move(to));
    const TensorId result = op.out[0];
    if (!alone) made_[copy] = result;
    graph_.ops.push_back(std::move(op));
    return result;
  }

  ir::Graph& graph_;
  PassContext& context_;
  const Constraints constraints_;
  FreshNames names_;
  std::map<Copy, TensorId> made_;
};

}  // namespace

bool prepare_operands(ir::Graph& graph, PassContext& context) {
  Preparer(graph, context).run();
  return true;
}

}  // namespace maco::passes
