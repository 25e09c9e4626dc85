// turn: a matmul of queries and keys rotates their heads itself, while its sums are still in
// registers.
//
//   qkv = matmul(x, w); q = rope(columns of qkv); k = rope(columns of qkv)
//   kc = kv_append(kc, k); vc = kv_append(vc, columns of qkv); y = attention(q, kc, vc)
//
// becomes a matmul whose first columns are rotated; the other ops read columns of its result. The
// matmul's sums are rounded as before, so that no bit changes. Sines and cosines come from a matrix
// that is made once for all matmuls with the same rows, positions and heads: computing them where
// the sums are took a third of a matmul's time (docs/notebook/prompt.md).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/rope.h"
#include "compiler/passes/fuse/columns.h"
#include "compiler/passes/fuse/fold.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/graph_edit.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

class Ropes : public Fold {
 public:
  Ropes(ir::Graph& graph, PassContext& context) : Fold(graph, context, "rope", "product", true) {}
  void run() {
    Fold::run();
    add_sines();
  }

 private:
  int64_t head_dim(const Op& rope) const { return constant_of(graph_, rope, "head_dim", 0); }
  bool is_from_outside(TensorId t) const {
    return graph_[t].kind == TensorKind::Input || graph_[t].kind == TensorKind::Param;
  }
  // Why all ropes of a matmul's result stay, or "". The reason is the same for each.
  std::string refuse(const Op& rope) override {
    if (ops::rope_inputs(rope).positions > 0) return "its positions are a tensor";
    if (ops::rope_inputs(rope).tables > 0) return "its cosines and sines are tensors";
    if (const int64_t turned = ops::rotary_dim(graph_, rope); turned < head_dim(rope))
      return fmt::format("it turns {} of {} elements of a head", turned, head_dim(rope));
    // The frequencies are read before everything else.
    if (const int given = ops::rope_inputs(rope).frequencies;
        given > 0 && !is_from_outside(rope.in[static_cast<size_t>(given)]))
      return "its frequencies are no input or parameter";
    const TensorId y = rope.in[0];
    // The rope's operand may have been another rope's result.
    if (std::count(readers(y).begin(), readers(y).end(), place_of(rope)) == 0)
      return "it turns what has turned";
    return shared_reason(y, [&] { return refuse_product(y, rope); });
  }
  std::string refuse_product(TensorId y, const Op& rope) const {
    std::string why = refuse_maker(graph_, uses_, y, "turns", "turn");
    if (!why.empty()) return why;
    const Op& product = graph_.ops[uses_.writer(y)];

    std::vector<ops::Columns> turned;
    for (size_t r : readers(y)) {
      const Op& op = graph_.ops[r];
      if (op.kind != "rope") continue;
      if (ops::rope_inputs(op).positions > 0 || turns_of(graph_, op) != turns_of(graph_, rope))
        return "its product's result is turned in several ways";
      if (uses_.constraints.constrained(op))
        return "a constraint concerns it, or another rope of its product";
      if (why = refuse_readers(op, y); !why.empty()) return why;
      turned.push_back(columns_read(graph_, op, y));
    }
    std::sort(turned.begin(), turned.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 1; i < turned.size(); ++i)
      if (turned[i].first != turned[i - 1].first + turned[i - 1].count)
        return "the columns that turn don't lie side by side";
    const int64_t first = turned.front().first, end = turned.back().first + turned.back().count;
    if (first % head_dim(rope) != 0) return "heads don't begin at their multiples";
    for (size_t r : readers(y)) {
      const Op& op = graph_.ops[r];
      if (op.kind == "rope") continue;
      const ops::Columns columns = columns_read(graph_, op, y);
      if (columns.first < end && columns.first + columns.count > first)
        return fmt::format("'{}' reads what doesn't turn", op.name);
    }
    return ops::refuse_to_turn(graph_, product, head_dim(rope), context_.machine);
  }
  // The rope's result must be all of the matmul's, or its readers must be able to read columns of
  // that.
  std::string refuse_readers(const Op& rope, TensorId y) const {
    if (std::string why = refuse_result(graph_, rope, y); !why.empty() || is_whole(rope, y))
      return why;
    const TensorId z = rope.out[0];
    for (size_t r : readers(z))
      if (!takes_columns(graph_, graph_.ops[r], z, y, columns_read(graph_, rope, y)) ||
          graph_.ops[r].kind == "rope")
        return fmt::format(
            "'{}' reads its result, which isn't an append, or an attention whose queries it is",
            graph_.ops[r].name);
    return "";
  }
  bool is_whole(const Op& rope, TensorId y) const {
    return columns_read(graph_, rope, y).count == columns_in(y);
  }

  void fold(const Op& rope) override {
    const TensorId y = rope.in[0], z = rope.out[0];
    const ops::Columns columns = columns_read(graph_, rope, y);
    Op& product = graph_.ops[uses_.writer(y)];
    sines_.try_emplace(product.name, rope);
    // Ropes of a matmul come in any order.
    int64_t first = columns.first, end = columns.first + columns.count;
    if (product.attrs.count("turned") > 0) {
      const int64_t was = constant_of(graph_, product, "first_turned", 0);
      end = std::max(end, was + constant_of(graph_, product, "turned", 0));
      first = std::min(first, was);
    } else {
      for (const char* attr : {"head_dim", "interleaved"})
        if (const auto it = rope.attrs.find(attr); it != rope.attrs.end())
          product.attrs[attr] = it->second;
    }
    product.attrs["first_turned"] = {ir::Expr(first), rope.loc};
    product.attrs["turned"] = {ir::Expr(end - first), rope.loc};
    const bool whole = is_whole(rope, y);
    for (size_t r : readers(z)) {
      Op& op = graph_.ops[r];
      if (whole)
        std::replace(op.in.begin(), op.in.end(), z, y);
      else
        take_columns(op, z, y, columns, rope.loc);
    }
  }

  // Gives matmuls the operand with sines and cosines, which is made at the graph's start.
  void add_sines() {
    FreshNames names(graph_);
    std::vector<Op> made;
    for (Op& product : graph_.ops) {
      const auto it = sines_.find(product.name);
      if (it == sines_.end()) continue;
      const Op& rope = it->second;
      Op op = sines_of(rope, graph_[product.in[0]].shape[0]);
      auto same = std::find_if(made.begin(), made.end(), [&](const Op& other) {
        return turns_of(graph_, other) == turns_of(graph_, op) &&
               ops::attr_expr(graph_, other, "rows") == ops::attr_expr(graph_, op, "rows");
      });
      if (same == made.end()) {
        ir::Tensor sines;
        sines.name = names.tensor(rope.name + ".sines");
        op.name = names.op(sines.name);
        op.named = op.name != sines.name;
        sines.dtype = ir::DType::F32;
        sines.shape = {*ops::attr_expr(graph_, op, "rows"),
                       *ops::attr_expr(graph_, op, "head_dim")};
        sines.loc = rope.loc;
        op.out = {ir::id_of<TensorId>(graph_.tensors.size())};
        graph_.tensors.push_back(std::move(sines));
        same = made.insert(same, std::move(op));
      }
      ops::add_stage_inputs(product, "turn", {same->out[0]}, rope.loc);
    }
    graph_.ops.insert(graph_.ops.begin(), made.begin(), made.end());
  }
  static Op sines_of(const Op& rope, const ir::Expr& rows) {
    Op op;
    op.kind = "rope_sines";
    op.loc = rope.loc;
    for (const char* attr : {"head_dim", "position", "theta", "scaling", "attention_factor"})
      if (const auto it = rope.attrs.find(attr); it != rope.attrs.end())
        op.attrs[attr] = it->second;
    op.attrs["rows"] = {rows, rope.loc};
    if (const int first = ops::rope_inputs(rope).frequencies; first > 0)
      op.in = {rope.in[static_cast<size_t>(first)]};
    op.in_loc.assign(op.in.size(), rope.loc);
    return op;
  }

  std::map<std::string, Op> sines_;  // by rotating matmul: one of its ropes
};

}  // namespace

bool fold_turns(ir::Graph& graph, PassContext& context) {
  Ropes(graph, context).run();
  return true;
}

}  // namespace maco::passes
