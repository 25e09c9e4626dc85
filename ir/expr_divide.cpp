#include "ir/expr.h"

namespace maco::ir {

std::optional<Expr> divide_exact(const Expr& e, int64_t n) {
  if (n == 1) return canonical(e);
  // A value on the stack: the expression, and its quotient if it surely is a multiple of n.
  struct Item {
    Expr whole;
    std::optional<Expr> part;
  };
  std::vector<Item> stack;
  const Expr form = canonical(e);
  for (const Expr::Node& node : form.nodes()) {
    Item out;
    if (node.kind == Expr::Kind::Const) {
      out.whole = Expr(node.value);
      if (node.value % n == 0) out.part = Expr(node.value / n);
    } else if (node.kind == Expr::Kind::Var) {
      out.whole = Expr::var(node.name);
    } else if (node.kind == Expr::Kind::Neg || node.kind == Expr::Kind::Not) {
      Item a = std::move(stack.back());
      stack.pop_back();
      out.whole = Expr::unary(node.kind, a.whole);
      if (node.kind == Expr::Kind::Neg && a.part) out.part = Expr::unary(node.kind, *a.part);
    } else {
      Item b = std::move(stack.back());
      stack.pop_back();
      Item a = std::move(stack.back());
      stack.pop_back();
      out.whole = Expr::binary(node.kind, a.whole, b.whole);
      if (node.kind == Expr::Kind::Add || node.kind == Expr::Kind::Sub) {
        if (a.part && b.part) out.part = Expr::binary(node.kind, *a.part, *b.part);
      } else if (node.kind == Expr::Kind::Mul) {
        if (a.part)
          out.part = Expr::binary(node.kind, *a.part, b.whole);
        else if (b.part)
          out.part = Expr::binary(node.kind, a.whole, *b.part);
      }
    }
    stack.push_back(std::move(out));
  }
  if (stack.size() != 1 || !stack.back().part) return std::nullopt;
  return canonical(*stack.back().part);
}

}  // namespace maco::ir
