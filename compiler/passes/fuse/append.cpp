// append: a matmul of keys and values writes the rows of their caches itself.
//
//   qkv = matmul(x, w); kc = kv_append(kc, columns of qkv, at = pos); vc = kv_append(vc, ...)
//
// becomes qkv, kc, vc = matmul(x, w, append_at = pos): its last columns are rows of the caches,
// first of one and then of the other. A separate append would cost another hand-off with nothing to
// do meanwhile, as a whole attention waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compiler/functions/matmul.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/movement.h"
#include "compiler/passes/fuse/columns.h"
#include "compiler/passes/fuse/fold.h"
#include "compiler/passes/fuse/rules.h"
#include "compiler/passes/graph_edit.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;

namespace {

class Appends : public Fold {
 public:
  Appends(ir::Graph& graph, PassContext& context)
      : Fold(graph, context, "kv_append", "product", true) {}

 private:
  // An attention step that has taken the append's operand returns the rows that the append then
  // only copies.
  bool concerns(const Op& append) const override {
    const size_t writer = uses_.writer(append.in[1]);
    return writer == kNoWriter || graph_.ops[writer].kind != "attention_step";
  }
  ops::Columns columns_of(const Op& append) const {
    return columns_read(graph_, append, append.in[1]);
  }
  ir::Expr at_of(const Op& append) const {
    return ir::canonical(ops::attr_expr(graph_, append, "at").value_or(ir::Expr(0)));
  }

  // Why all appends of a matmul's result stay, or "". The reason is the same for each.
  std::string refuse(const Op& append) override {
    const TensorId y = append.in[1];
    return shared_reason(y, [&] { return refuse_product(y); });
  }
  std::string refuse_product(TensorId y) const {
    std::string why = refuse_maker(graph_, uses_, y, "appends", "append");
    if (!why.empty()) return why;
    const size_t writer = uses_.writer(y);
    const Op& product = graph_.ops[writer];

    std::vector<size_t> appends;
    for (size_t r : readers(y))
      if (graph_.ops[r].kind == "kv_append") appends.push_back(r);
    constexpr size_t kMost = 2;
    if (appends.size() > kMost) return "its product's result is appended to more than two states";
    std::sort(appends.begin(), appends.end(), [&](size_t a, size_t b) {
      return columns_of(graph_.ops[a]).first < columns_of(graph_.ops[b]).first;
    });
    const int64_t first = columns_of(graph_.ops[appends.front()]).first;
    int64_t end = first;
    for (size_t i : appends) {
      const Op& append = graph_.ops[i];
      if (why = refuse_append(append, writer); !why.empty()) return why;
      if (at_of(append) != at_of(graph_.ops[appends.front()]))
        return "its product's result is appended from different rows on";
      const ops::Columns columns = columns_of(append);
      const int64_t vector = functions::matmul_appended_vector(graph_[y].dtype);
      if (columns.first != end || columns.first % vector != 0 || columns.count % vector != 0)
        return "the columns that are appended don't lie side by side, in whole vectors";
      end += columns.count;
    }
    if (end != columns_in(y)) return "its columns aren't the last of the product's result";
    for (size_t r : readers(y)) {
      const Op& op = graph_.ops[r];
      const ops::Columns columns = columns_read(graph_, op, y);
      if (op.kind != "kv_append" && columns.first + columns.count > first)
        return fmt::format("'{}' reads what is appended", op.name);
    }
    return ops::refuse_to_append(graph_, product, context_.machine);
  }
  std::string refuse_append(const Op& append, size_t product) const {
    const TensorId state = append.in[0], y = append.in[1];
    if (uses_.constraints.constrained(append))
      return "a constraint concerns it, or another append of its product";
    if (graph_[state].dtype != graph_[y].dtype) return "its state is of another type";
    const auto range = [&](std::string_view n) { return graph_.range_of(n); };
    const auto first = ir::bounds(at_of(append), range),
               rows = ir::bounds(graph_[y].shape[0], range);
    const auto room = graph_[state].shape[0].constant();
    if (!first || !rows || !room || first->lo < 0 || first->hi + rows->hi > *room)
      return "the most rows at the last place don't fit into its state";
    for (size_t i = product; i < place_of(append); ++i) {
      const Op& op = graph_.ops[i];
      if (uses_.is_fence(i)) return "a barrier is between it and its product";
      for (const auto* list : {&op.in, &op.out})
        if (std::count(list->begin(), list->end(), state) > 0)
          return i == product ? "its product reads its state"
                              : fmt::format("'{}' reads or writes its state before it", op.name);
    }
    return "";
  }

  // Appends of a matmul come in any order.
  void fold(const Op& append) override {
    Op& product = graph_.ops[uses_.writer(append.in[1])];
    const int64_t first = columns_of(append).first;
    const auto was = ops::attr_expr(graph_, product, "first_appended");
    const bool in_front = was && first < *was->constant();
    product.out.insert(in_front ? product.out.begin() + 1 : product.out.end(), append.in[0]);
    if (!was || in_front) product.attrs["first_appended"] = {ir::Expr(first), append.loc};
    product.attrs["append_at"] = {at_of(append), append.loc};
  }
};

}  // namespace

bool fold_appends(ir::Graph& graph, PassContext& context) {
  Appends(graph, context).run();
  return true;
}

}  // namespace maco::passes
