#include "compiler/codegen/expressions.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "ir/check.h"

namespace maco::codegen {

std::string source_of(int64_t value) {
  // The least has no literal.
  if (value == std::numeric_limits<int64_t>::min()) return fmt::format("(-{}ll - 1)", INT64_MAX);
  return value < 0 ? fmt::format("(-{}ll)", -value) : fmt::format("{}ll", value);
}

std::string source_of(const ir::Expr& e,
                      const std::function<std::string(std::string_view)>& variable) {
  using Kind = ir::Expr::Kind;
  std::vector<std::string> stack;
  const auto pop = [&] {
    MACO_CHECK(!stack.empty(), e.str());
    std::string top = std::move(stack.back());
    stack.pop_back();
    return top;
  };
  const auto binary = [&](std::string_view form) {
    const std::string b = pop(), a = pop();
    stack.push_back(fmt::format(fmt::runtime(form), a, b));
  };
  for (const ir::Expr::Node& n : e.nodes()) {
    switch (n.kind) {
      case Kind::Const: stack.push_back(source_of(n.value)); break;
      case Kind::Var: stack.push_back(variable(n.name)); break;
      case Kind::Neg: stack.push_back(fmt::format("(-{})", pop())); break;
      case Kind::Not: stack.push_back(fmt::format("i64({} == 0)", pop())); break;
      case Kind::Add: binary("({} + {})"); break;
      case Kind::Sub: binary("({} - {})"); break;
      case Kind::Mul: binary("({} * {})"); break;
      case Kind::Div: binary("floor_div({}, {})"); break;
      case Kind::Mod: binary("floor_mod({}, {})"); break;
      case Kind::Eq: binary("i64({} == {})"); break;
      case Kind::Ne: binary("i64({} != {})"); break;
      case Kind::Lt: binary("i64({} < {})"); break;
      case Kind::Le: binary("i64({} <= {})"); break;
      case Kind::Gt: binary("i64({} > {})"); break;
      case Kind::Ge: binary("i64({} >= {})"); break;
      case Kind::And: binary("i64({} != 0 && {} != 0)"); break;
      case Kind::Or: binary("i64({} != 0 || {} != 0)"); break;
    }
  }
  return pop();
}

}  // namespace maco::codegen
