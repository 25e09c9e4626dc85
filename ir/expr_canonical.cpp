// The canonical form of an expression: a sum of products.
//
// A Poly maps monomials (sorted products of atoms) to integer coefficients. Atoms are variables and
// whatever is not a sum or a product: quotients, remainders, comparisons, logic, each of canonical
// operands. Where a coefficient would overflow or a product would grow too large, the operation
// becomes an atom itself, so that the form always exists and is stable.
#include <map>
#include <numeric>

#include "ir/check.h"
#include "ir/expr.h"
#include "ir/expr_arithmetic.h"

namespace maco::ir {

namespace {

using Kind = Expr::Kind;

constexpr size_t kMaxTerms = 64;
constexpr size_t kMaxDegree = 8;

/// The atoms by their text, sorted.
using Monomial = std::vector<std::string>;
struct ConstantLast {
  bool operator()(const Monomial& a, const Monomial& b) const {
    if (a.empty() || b.empty()) return !a.empty() && b.empty();
    return a < b;
  }
};
struct Term {
  int64_t coefficient = 0;
  std::vector<Expr> atoms;  // in the monomial's order
};
using Poly = std::map<Monomial, Term, ConstantLast>;

Poly constant(int64_t value) {
  Poly p;
  if (value != 0) p[{}] = {value, {}};
  return p;
}

Poly atom(Expr e) {
  if (auto value = e.constant()) return constant(*value);
  Poly p;
  p[{e.str()}] = {1, {e}};
  return p;
}

std::optional<int64_t> constant_of(const Poly& p) {
  if (p.empty()) return 0;
  if (p.size() == 1 && p.begin()->first.empty()) return p.begin()->second.coefficient;
  return std::nullopt;
}

std::optional<Poly> add(Poly a, const Poly& b, int64_t factor = 1) {
  for (const auto& [monomial, term] : b) {
    auto scaled = apply(Kind::Mul, term.coefficient, factor);
    if (!scaled) return std::nullopt;
    Term& sum = a[monomial];
    auto coefficient = apply(Kind::Add, sum.coefficient, *scaled);
    if (!coefficient) return std::nullopt;
    sum.coefficient = *coefficient;
    sum.atoms = term.atoms;
    if (sum.coefficient == 0) a.erase(monomial);
  }
  return a;
}

std::optional<Poly> multiply(const Poly& a, const Poly& b) {
  if (a.size() * b.size() > kMaxTerms) return std::nullopt;
  Poly result;
  for (const auto& [ma, ta] : a) {
    for (const auto& [mb, tb] : b) {
      if (ma.size() + mb.size() > kMaxDegree) return std::nullopt;
      auto coefficient = apply(Kind::Mul, ta.coefficient, tb.coefficient);
      if (!coefficient) return std::nullopt;
      Monomial monomial;
      Term term{*coefficient, {}};
      for (size_t i = 0, j = 0; i < ma.size() || j < mb.size();) {
        const bool left = j == mb.size() || (i < ma.size() && ma[i] <= mb[j]);
        monomial.push_back(left ? ma[i] : mb[j]);
        term.atoms.push_back(left ? ta.atoms[i++] : tb.atoms[j++]);
      }
      Poly one;
      one[monomial] = std::move(term);
      auto sum = add(std::move(result), one);
      if (!sum) return std::nullopt;
      result = std::move(*sum);
    }
  }
  return result;
}

Expr to_expr(const Poly& p) {
  std::optional<Expr> sum;
  for (const auto& [monomial, term] : p) {
    int64_t c = term.coefficient;
    // "a - 2 * b" rather than "a + -2 * b", where 2 exists.
    const bool subtract = sum && c < 0 && apply(Kind::Neg, c, 0);
    if (subtract) c = -c;
    std::optional<Expr> product;
    if (c != 1 || term.atoms.empty())
      if (c != -1 || term.atoms.empty()) product = Expr(c);
    for (const Expr& a : term.atoms) {
      if (product)
        product = Expr::binary(Kind::Mul, std::move(*product), a);
      else
        product = c == -1 ? Expr::unary(Kind::Neg, a) : a;
    }
    if (sum)
      sum = Expr::binary(subtract ? Kind::Sub : Kind::Add, std::move(*sum), std::move(*product));
    else
      sum = std::move(product);
  }
  return sum ? *sum : Expr(0);
}

Poly opaque(Kind kind, const Poly& a, const Poly& b) {
  return atom(Expr::binary(kind, to_expr(a), to_expr(b)));
}

/// p / d if every term of p is a multiple of the single term d.
std::optional<Poly> exact_quotient(const Poly& p, const Poly& d) {
  if (d.size() != 1) return std::nullopt;
  const auto& [divisor, divisor_term] = *d.begin();
  Poly result;
  for (const auto& [monomial, term] : p) {
    if (apply(Kind::Mod, term.coefficient, divisor_term.coefficient) != 0) return std::nullopt;
    auto coefficient = apply(Kind::Div, term.coefficient, divisor_term.coefficient);
    if (!coefficient) return std::nullopt;
    Monomial rest;
    Term quotient{*coefficient, {}};
    size_t j = 0;
    for (size_t i = 0; i < monomial.size(); ++i) {
      if (j < divisor.size() && monomial[i] == divisor[j]) {
        ++j;
        continue;
      }
      rest.push_back(monomial[i]);
      quotient.atoms.push_back(term.atoms[i]);
    }
    if (j < divisor.size()) return std::nullopt;
    result[rest] = std::move(quotient);
  }
  return result;
}

Poly map_coefficients(const Poly& p, const std::function<int64_t(int64_t)>& f) {
  Poly result;
  for (const auto& [monomial, term] : p)
    if (int64_t c = f(term.coefficient); c != 0) result[monomial] = {c, term.atoms};
  return result;
}

/// p / c for a constant c > 0: floor((c * q + r) / c) = q + floor(r / c), and floor((g * x + k) /
/// (g * c)) = floor((x + floor(k / g)) / c).
Poly divide_by(const Poly& p, int64_t c) {
  Poly whole = map_coefficients(p, [&](int64_t x) { return *apply(Kind::Div, x, c); });
  Poly rest = map_coefficients(p, [&](int64_t x) { return *apply(Kind::Mod, x, c); });
  if (constant_of(rest)) return whole;  // 0 <= rest < c
  int64_t g = c;
  for (const auto& [monomial, term] : rest)
    if (!monomial.empty()) g = std::gcd(g, term.coefficient);
  rest = map_coefficients(rest, [&](int64_t x) { return x / g; });
  Poly quotient = atom(Expr::binary(Kind::Div, to_expr(rest), c / g));
  auto sum = add(whole, quotient);
  return sum ? *sum : opaque(Kind::Add, whole, quotient);
}

Poly divide(const Poly& a, const Poly& b) {
  auto c = constant_of(b);
  if (c == 0) return opaque(Kind::Div, a, b);
  if (auto exact = exact_quotient(a, b)) return *exact;
  if (c && *c > 0) return divide_by(a, *c);
  if (c)  // floor(a / -c) = floor(-a / c)
    if (auto positive = apply(Kind::Neg, *c, 0))
      if (auto negated = add({}, a, -1)) return divide_by(*negated, *positive);
  return opaque(Kind::Div, a, b);
}

Poly modulo(const Poly& a, const Poly& b) {
  auto c = constant_of(b);
  if (c == 0) return opaque(Kind::Mod, a, b);
  if (exact_quotient(a, b)) return {};
  if (!c || *c < 0) return opaque(Kind::Mod, a, b);
  Poly rest = map_coefficients(a, [&](int64_t x) { return *apply(Kind::Mod, x, *c); });
  if (constant_of(rest)) return rest;
  int64_t g = *c;
  for (const auto& [monomial, term] : rest) g = std::gcd(g, term.coefficient);
  rest = map_coefficients(rest, [&](int64_t x) { return x / g; });
  Poly result = atom(Expr::binary(Kind::Mod, to_expr(rest), *c / g));
  return map_coefficients(result, [&](int64_t x) { return x * g; });
}

bool is_boolean_atom(const Expr& e) {
  const Kind kind = e.nodes().back().kind;
  return kind >= Kind::Eq && kind <= Kind::Or;
}

/// Whether p is an atom that is 0 or 1, or one minus such an atom.
bool is_boolean(const Poly& p) {
  if (p.empty()) return true;
  const auto& [monomial, term] = *p.begin();
  if (monomial.empty()) return term.coefficient == 1;
  if (monomial.size() != 1 || !is_boolean_atom(term.atoms[0])) return false;
  if (p.size() == 1) return term.coefficient == 1;
  const auto& [last, one] = *p.rbegin();
  return p.size() == 2 && last.empty() && one.coefficient == 1 && term.coefficient == -1;
}

Poly negate_truth(const Poly& boolean) { return *add(constant(1), boolean, -1); }

/// a == 0
Poly equals_zero(Poly a) {
  if (auto c = constant_of(a)) return constant(*c == 0);
  if (!is_boolean(a) && a.begin()->second.coefficient < 0)
    if (auto negated = add({}, a, -1)) a = std::move(*negated);
  if (is_boolean(a)) return negate_truth(a);
  return atom(Expr::binary(Kind::Eq, to_expr(a), 0));
}

Poly truth(const Poly& a) { return is_boolean(a) ? a : negate_truth(equals_zero(a)); }

Poly less_than_zero(const Poly& a) {
  if (auto c = constant_of(a)) return constant(*c < 0);
  return atom(Expr::binary(Kind::Lt, to_expr(a), 0));
}

/// a < b, or a <= b: b - a + 1 > 0.
Poly less(const Poly& a, const Poly& b, bool or_equal) {
  auto difference = add(a, b, -1);
  if (difference && or_equal) difference = add(std::move(*difference), constant(-1));
  return difference ? less_than_zero(*difference) : opaque(or_equal ? Kind::Le : Kind::Lt, a, b);
}

Poly logic(Kind kind, const Poly& x, const Poly& y) {
  Poly a = truth(x);
  const Poly b = truth(y);
  const bool deciding = kind == Kind::Or;  // the truth value that decides the result alone
  for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)})
    if (auto c = constant_of(one)) return (*c != 0) == deciding ? constant(deciding) : other;
  if (to_expr(a) == to_expr(b)) return a;
  return opaque(kind, a, b);
}

Poly combine(Kind kind, const Poly& a, const Poly& b) {
  switch (kind) {
    case Kind::Neg: {
      auto negated = add({}, a, -1);
      return negated ? *negated : atom(Expr::unary(Kind::Neg, to_expr(a)));
    }
    case Kind::Not: return equals_zero(a);
    case Kind::Add:
    case Kind::Sub: {
      auto sum = add(a, b, kind == Kind::Add ? 1 : -1);
      return sum ? *sum : opaque(kind, a, b);
    }
    case Kind::Mul: {
      auto product = multiply(a, b);
      return product ? *product : opaque(kind, a, b);
    }
    case Kind::Div: return divide(a, b);
    case Kind::Mod: return modulo(a, b);
    case Kind::Eq:
    case Kind::Ne: {
      auto difference = add(a, b, -1);
      const Poly equal = difference ? equals_zero(*difference) : opaque(Kind::Eq, a, b);
      return kind == Kind::Eq ? equal : negate_truth(equal);
    }
    case Kind::Lt: return less(a, b, false);
    case Kind::Le: return less(a, b, true);
    case Kind::Gt: return less(b, a, false);
    case Kind::Ge: return less(b, a, true);
    case Kind::And:
    case Kind::Or: return logic(kind, a, b);
    case Kind::Const:
    case Kind::Var: break;
  }
  MACO_CHECK(false, "not an operator");
}

}  // namespace

Expr canonical(const Expr& e) {
  if (e.nodes().size() == 1) return e;
  std::vector<Poly> stack;
  for (const Expr::Node& node : e.nodes()) {
    if (node.kind == Kind::Const) {
      stack.push_back(constant(node.value));
    } else if (node.kind == Kind::Var) {
      stack.push_back(atom(Expr::var(node.name)));
    } else if (node.kind == Kind::Neg || node.kind == Kind::Not) {
      stack.back() = combine(node.kind, stack.back(), {});
    } else {
      const Poly b = std::move(stack.back());
      stack.pop_back();
      stack.back() = combine(node.kind, stack.back(), b);
    }
  }
  MACO_CHECK(stack.size() == 1, "malformed expression");
  return to_expr(stack[0]);
}

}  // namespace maco::ir
