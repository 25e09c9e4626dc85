// Expressions are trees in postfix order; everything here is one walk over the nodes with a stack,
// so that long expressions need no deep recursion. Parsing is in expr_parse.cpp, the canonical form
// in expr_canonical.cpp.
#include "ir/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/check.h"
#include "ir/expr_arithmetic.h"

namespace maco::ir {

namespace {

using Kind = Expr::Kind;

bool is_unary(Kind kind) { return kind == Kind::Neg || kind == Kind::Not; }
bool is_leaf(Kind kind) { return kind == Kind::Const || kind == Kind::Var; }

std::string_view spelling(Kind kind) {
  switch (kind) {
    case Kind::Neg: return "-";
    case Kind::Not: return "!";
    case Kind::Add: return " + ";
    case Kind::Sub: return " - ";
    case Kind::Mul: return " * ";
    case Kind::Div: return " / ";
    case Kind::Mod: return " % ";
    case Kind::Eq: return " == ";
    case Kind::Ne: return " != ";
    case Kind::Lt: return " < ";
    case Kind::Le: return " <= ";
    case Kind::Gt: return " > ";
    case Kind::Ge: return " >= ";
    case Kind::And: return " && ";
    case Kind::Or: return " || ";
    case Kind::Const:
    case Kind::Var: break;
  }
  return "";
}

enum Precedence { kOr = 1, kAnd, kCompare, kSum, kProduct, kUnary, kPrimary };

Precedence precedence(Kind kind) {
  switch (kind) {
    case Kind::Or: return kOr;
    case Kind::And: return kAnd;
    case Kind::Eq:
    case Kind::Ne:
    case Kind::Lt:
    case Kind::Le:
    case Kind::Gt:
    case Kind::Ge: return kCompare;
    case Kind::Add:
    case Kind::Sub: return kSum;
    case Kind::Mul:
    case Kind::Div:
    case Kind::Mod: return kProduct;
    case Kind::Neg:
    case Kind::Not: return kUnary;
    case Kind::Const:
    case Kind::Var: break;
  }
  return kPrimary;
}

}  // namespace

std::optional<int64_t> apply(Kind kind, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (kind) {
    case Kind::Neg:
      return __builtin_sub_overflow(int64_t{0}, a, &r) ? std::nullopt : std::optional(r);
    case Kind::Not: return a == 0;
    case Kind::Add: return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case Kind::Sub: return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case Kind::Mul: return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case Kind::Div:
      if (b == 0) return std::nullopt;
      if (b == -1) return apply(Kind::Neg, a, 0);  // the hardware traps on min / -1
      return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
    case Kind::Mod:
      if (b == 0) return std::nullopt;
      if (b == -1) return 0;
      r = a % b;
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    case Kind::Eq: return a == b;
    case Kind::Ne: return a != b;
    case Kind::Lt: return a < b;
    case Kind::Le: return a <= b;
    case Kind::Gt: return a > b;
    case Kind::Ge: return a >= b;
    case Kind::And: return a != 0 && b != 0;
    case Kind::Or: return a != 0 || b != 0;
    case Kind::Const:
    case Kind::Var: break;
  }
  return std::nullopt;
}

Expr::Expr(int64_t value) { nodes_.push_back({Kind::Const, value, {}}); }

Expr Expr::var(std::string name) {
  Expr e;
  e.nodes_[0] = {Kind::Var, 0, std::move(name)};
  return e;
}

Expr Expr::unary(Kind kind, Expr a) {
  MACO_CHECK(is_unary(kind), "not a unary operator");
  if (auto x = a.constant())
    if (auto folded = apply(kind, *x, 0)) return *folded;
  a.nodes_.push_back({kind, 0, {}});
  return a;
}

Expr Expr::binary(Kind kind, Expr a, Expr b) {
  MACO_CHECK(!is_unary(kind) && !is_leaf(kind), "not a binary operator");
  if (auto x = a.constant())
    if (auto y = b.constant())
      if (auto folded = apply(kind, *x, *y)) return *folded;
  a.nodes_.insert(a.nodes_.end(), b.nodes_.begin(), b.nodes_.end());
  a.nodes_.push_back({kind, 0, {}});
  return a;
}

Expr operator+(const Expr& a, const Expr& b) { return Expr::binary(Kind::Add, a, b); }
Expr operator-(const Expr& a, const Expr& b) { return Expr::binary(Kind::Sub, a, b); }
Expr operator*(const Expr& a, const Expr& b) { return Expr::binary(Kind::Mul, a, b); }

std::optional<int64_t> Expr::constant() const {
  if (nodes_.size() == 1 && nodes_[0].kind == Kind::Const) return nodes_[0].value;
  return std::nullopt;
}

std::set<std::string> Expr::vars() const {
  std::set<std::string> result;
  for (const Node& node : nodes_)
    if (node.kind == Kind::Var) result.insert(node.name);
  return result;
}

bool Expr::uses(std::string_view name) const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [&](const Node& n) { return n.kind == Kind::Var && n.name == name; });
}

namespace {

/// Prints nodes [begin, end), which are one expression.
std::string print(const std::vector<Expr::Node>& nodes, size_t begin, size_t end) {
  struct Piece {
    std::string text;
    Precedence precedence;
  };
  std::vector<Piece> stack;
  auto in_parentheses_if = [](bool needed, std::string text) {
    if (needed) text = "(" + text + ")";
    return text;
  };
  for (size_t i = begin; i < end; ++i) {
    const Expr::Node& node = nodes[i];
    const Precedence p = precedence(node.kind);
    if (node.kind == Kind::Const) {
      stack.push_back({std::to_string(node.value), node.value < 0 ? kUnary : kPrimary});
    } else if (node.kind == Kind::Var) {
      stack.push_back({node.name, kPrimary});
    } else if (is_unary(node.kind)) {
      Piece& a = stack.back();
      a.text =
          std::string(spelling(node.kind)) + in_parentheses_if(a.precedence < p, std::move(a.text));
      a.precedence = p;
    } else {
      Piece b = std::move(stack.back());
      stack.pop_back();
      Piece& a = stack.back();
      // Operators group to the left; comparisons don't chain at all.
      const bool left = a.precedence < p || (p == kCompare && a.precedence == p);
      a.text = in_parentheses_if(left, std::move(a.text));
      a.text += spelling(node.kind);
      a.text += in_parentheses_if(b.precedence <= p, std::move(b.text));
      a.precedence = p;
    }
  }
  MACO_CHECK(stack.size() == 1, "malformed expression");
  return std::move(stack[0].text);
}

}  // namespace

std::string Expr::str() const { return print(nodes_, 0, nodes_.size()); }

EvalResult evaluate(const Expr& e, const Lookup& lookup) {
  struct Slot {
    EvalResult r;
    size_t begin;  // of the node span that gave it, for messages
  };
  std::vector<Slot> stack;
  const auto& nodes = e.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Expr::Node& node = nodes[i];
    if (node.kind == Kind::Const) {
      stack.push_back({{node.value, ""}, i});
      continue;
    }
    if (node.kind == Kind::Var) {
      auto value = lookup(node.name);
      stack.push_back({{value, value ? "" : fmt::format("unknown name '{}'", node.name)}, i});
      continue;
    }
    Slot b{{int64_t{0}, ""}, i};
    if (!is_unary(node.kind)) {
      b = std::move(stack.back());
      stack.pop_back();
    }
    Slot& a = stack.back();
    if (!a.r.value) continue;
    // The right side of && and || is evaluated only where the left side doesn't decide.
    if (node.kind == Kind::And && *a.r.value == 0) continue;
    if (node.kind == Kind::Or && *a.r.value != 0) {
      a.r.value = 1;
      continue;
    }
    if (!b.r.value) {
      a.r = std::move(b.r);
      continue;
    }
    const bool by_zero = (node.kind == Kind::Div || node.kind == Kind::Mod) && *b.r.value == 0;
    a.r.value = apply(node.kind, *a.r.value, *b.r.value);
    if (!a.r.value)
      a.r.error = fmt::format("{} in '{}'", by_zero ? "division by zero" : "overflow",
                              print(nodes, a.begin, i + 1));
  }
  MACO_CHECK(stack.size() == 1, "malformed expression");
  return std::move(stack[0].r);
}

namespace {

/// Whether the value is always 0 or 1, so that "x != 0" is redundant.
bool is_boolean(const Expr& e) {
  const Kind kind = e.nodes().back().kind;
  return kind == Kind::Not || (kind >= Kind::Eq && kind <= Kind::Or);
}

}  // namespace

Expr substitute(const Expr& e, const Lookup& lookup) {
  std::vector<Expr> stack;
  for (const Expr::Node& node : e.nodes()) {
    if (node.kind == Kind::Const) {
      stack.push_back(node.value);
    } else if (node.kind == Kind::Var) {
      auto value = lookup(node.name);
      stack.push_back(value ? Expr(*value) : Expr::var(node.name));
    } else if (is_unary(node.kind)) {
      stack.back() = Expr::unary(node.kind, std::move(stack.back()));
    } else {
      Expr b = std::move(stack.back());
      stack.pop_back();
      Expr& a = stack.back();
      const auto left = a.constant();
      if (left && (node.kind == Kind::And || node.kind == Kind::Or)) {
        if ((*left != 0) == (node.kind == Kind::Or))
          a = *left != 0;
        else
          a = is_boolean(b) ? b : Expr::binary(Kind::Ne, b, 0);
        continue;
      }
      a = Expr::binary(node.kind, std::move(a), std::move(b));
    }
  }
  MACO_CHECK(stack.size() == 1, "malformed expression");
  return std::move(stack[0]);
}

namespace {

/// The smallest interval that holds `apply` of every pair of corners; nothing if one of them has no
/// value.
std::optional<Interval> corners(Kind kind, Interval a, Interval b) {
  std::optional<Interval> result;
  for (int64_t x : {a.lo, a.hi})
    for (int64_t y : {b.lo, b.hi}) {
      auto value = apply(kind, x, y);
      if (!value) return std::nullopt;
      result = result ? Interval{std::min(result->lo, *value), std::max(result->hi, *value)}
                      : Interval{*value, *value};
    }
  return result;
}

bool contains(Interval i, int64_t v) { return i.lo <= v && v <= i.hi; }
Interval truth(bool surely, bool surely_not) { return {surely ? 1 : 0, surely_not ? 0 : 1}; }

Interval modulo(Interval a, Interval b) {
  if (b.hi < 0) return {b.lo + 1, 0};
  // Within one period the remainder grows with the dividend.
  if (b.lo == b.hi && apply(Kind::Div, a.lo, b.lo) == apply(Kind::Div, a.hi, b.lo))
    return {*apply(Kind::Mod, a.lo, b.lo), *apply(Kind::Mod, a.hi, b.lo)};
  if (a.lo >= 0) return a.hi < b.lo ? a : Interval{0, std::min(a.hi, b.hi - 1)};
  return {0, b.hi - 1};
}

std::optional<Interval> bounds_of(Kind kind, Interval a, Interval b) {
  switch (kind) {
    case Kind::Neg: return corners(kind, a, {0, 0});
    case Kind::Not: return truth(a.lo == 0 && a.hi == 0, !contains(a, 0));
    case Kind::Add:
    case Kind::Sub:
    case Kind::Mul: return corners(kind, a, b);  // monotone in each operand
    case Kind::Div:
      if (contains(b, 0)) return std::nullopt;
      return corners(kind, a, b);  // monotone in each operand while the divisor keeps its sign
    case Kind::Mod:
      if (contains(b, 0)) return std::nullopt;
      return modulo(a, b);
    case Kind::Eq:
    case Kind::Ne: {
      const bool one = a.lo == a.hi && b.lo == b.hi && a.lo == b.lo;
      const bool apart = a.hi < b.lo || b.hi < a.lo;
      return kind == Kind::Eq ? truth(one, apart) : truth(apart, one);
    }
    case Kind::Lt: return truth(a.hi < b.lo, a.lo >= b.hi);
    case Kind::Le: return truth(a.hi <= b.lo, a.lo > b.hi);
    case Kind::Gt: return truth(a.lo > b.hi, a.hi <= b.lo);
    case Kind::Ge: return truth(a.lo >= b.hi, a.hi < b.lo);
    case Kind::And:
      return truth(!contains(a, 0) && !contains(b, 0),
                   (a.lo == 0 && a.hi == 0) || (b.lo == 0 && b.hi == 0));
    case Kind::Or:
      return truth(!contains(a, 0) || !contains(b, 0),
                   a.lo == 0 && a.hi == 0 && b.lo == 0 && b.hi == 0);
    case Kind::Const:
    case Kind::Var: break;
  }
  return std::nullopt;
}

std::optional<Interval> interval_of(const Expr& e, const RangeLookup& lookup) {
  std::vector<std::optional<Interval>> stack;
  for (const Expr::Node& node : e.nodes()) {
    if (node.kind == Kind::Const) {
      stack.push_back(Interval{node.value, node.value});
      continue;
    }
    if (node.kind == Kind::Var) {
      stack.push_back(lookup(node.name));
      continue;
    }
    std::optional<Interval> b = Interval{};
    if (!is_unary(node.kind)) {
      b = stack.back();
      stack.pop_back();
    }
    std::optional<Interval>& a = stack.back();
    if (!a) continue;
    const bool decided = (node.kind == Kind::And && a->lo == 0 && a->hi == 0) ||
                         (node.kind == Kind::Or && !contains(*a, 0));
    if (decided)
      a = truth(node.kind == Kind::Or, node.kind == Kind::And);
    else
      a = b ? bounds_of(node.kind, *a, *b) : std::nullopt;
  }
  MACO_CHECK(stack.size() == 1, "malformed expression");
  return stack[0];
}

// Whether `e` is linear in the variable while the others are fixed. Its extremes are then at the
// ends of the variable's range.
bool linear_in(const Expr& e, const std::string& name) {
  struct Part {
    bool uses, linear;
  };
  std::vector<Part> stack;
  for (const Expr::Node& node : e.nodes()) {
    if (is_leaf(node.kind)) {
      stack.push_back({node.kind == Kind::Var && node.name == name, true});
      continue;
    }
    Part b{false, true};
    if (!is_unary(node.kind)) {
      b = stack.back();
      stack.pop_back();
    }
    Part& a = stack.back();
    switch (node.kind) {
      case Kind::Neg:
      case Kind::Add:
      case Kind::Sub: a.linear = a.linear && b.linear; break;
      case Kind::Mul: a.linear = a.linear && b.linear && !(a.uses && b.uses); break;
      default: a.linear = !a.uses && !b.uses;
    }
    a.uses = a.uses || b.uses;
  }
  return stack[0].linear;
}

constexpr int64_t kMostValues = 1 << 14;
constexpr int64_t kMostSteps = 1 << 18;  // of evaluation; longer expressions try fewer values

// The extremes over all values of the variables, without values inside a range that can't be
// extreme; nothing if too many values are left. `failed`: whether `e` has no value for some of
// them.
std::optional<Interval> exact(const Expr& e, const RangeLookup& lookup, bool& failed) {
  struct Axis {
    std::string name;
    Interval range;
    int64_t step, value;
  };
  std::vector<Axis> axes;
  int64_t count = 1;
  for (const std::string& name : e.vars()) {
    const auto range = lookup(name);
    if (!range) return std::nullopt;
    const auto span = static_cast<uint64_t>(range->hi) - static_cast<uint64_t>(range->lo);
    const bool ends = linear_in(e, name);
    if (!ends && span >= static_cast<uint64_t>(kMostValues)) return std::nullopt;
    axes.push_back(
        {name, *range, ends ? std::max<int64_t>(1, static_cast<int64_t>(span)) : 1, range->lo});
    count *= span == 0 ? 1 : ends ? 2 : static_cast<int64_t>(span) + 1;
    if (count > kMostValues || count * static_cast<int64_t>(e.nodes().size()) > kMostSteps)
      return std::nullopt;
  }
  std::optional<Interval> result;
  for (;;) {
    const auto v = evaluate(e, [&](std::string_view n) -> std::optional<int64_t> {
      for (const Axis& a : axes)
        if (a.name == n) return a.value;
      return std::nullopt;
    });
    if (!v.value) {
      failed = true;
      return std::nullopt;
    }
    result = result ? Interval{std::min(result->lo, *v.value), std::max(result->hi, *v.value)}
                    : Interval{*v.value, *v.value};
    size_t i = 0;
    for (; i < axes.size(); ++i) {
      if (axes[i].value != axes[i].range.hi) {
        axes[i].value += axes[i].step;
        break;
      }
      axes[i].value = axes[i].range.lo;
    }
    if (i == axes.size()) return result;
  }
}

}  // namespace

std::optional<Interval> bounds(const Expr& e, const RangeLookup& lookup) {
  const std::optional<Interval> outer = interval_of(e, lookup);
  const auto variables = std::count_if(e.nodes().begin(), e.nodes().end(),
                                       [](const Expr::Node& n) { return n.kind == Kind::Var; });
  // If no variable occurs twice, operands are independent and their intervals combine exactly.
  if (outer && variables == static_cast<std::ptrdiff_t>(e.vars().size())) return outer;
  bool failed = false;
  if (const auto tight = exact(e, lookup, failed)) return tight;
  return failed ? std::nullopt : outer;
}

int64_t middle(Interval range) {
  const uint64_t span = static_cast<uint64_t>(range.hi) - static_cast<uint64_t>(range.lo);
  return static_cast<int64_t>(static_cast<uint64_t>(range.lo) + span / 2);
}

int64_t typical_value(const Expr& e, const Lookup& lookup, Interval range) {
  const auto value = evaluate(e, lookup).value;
  return value ? std::clamp(*value, range.lo, range.hi) : middle(range);
}

}  // namespace maco::ir
