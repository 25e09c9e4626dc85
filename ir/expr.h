// Integer expressions over named variables: dims, scalars, `rank` and `world`.
//
// Grammar (graph-format.md): integers, names, + - * / %, comparisons, && || !, parentheses. `/` and
// `%` floor as in Python; comparisons and logic give 0 or 1; && and || evaluate the right side only
// where it matters. Arithmetic is on signed 64 bits; overflow and division by zero are errors,
// never undefined.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace maco::ir {

/// An immutable expression, a value type. Stored in postfix order: the operands of an operator
/// stand before it.
class Expr {
 public:
  enum class Kind : uint8_t {
    Const,
    Var,
    Neg,
    Not,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or
  };
  struct Node {
    Kind kind = Kind::Const;
    int64_t value = 0;  // Const
    std::string name;   // Var
    friend bool operator==(const Node&, const Node&) = default;
  };

  Expr() : Expr(0) {}
  Expr(int64_t value);  // NOLINT: integers are expressions
  static Expr var(std::string name);
  static Expr unary(Kind kind, Expr a);
  static Expr binary(Kind kind, Expr a, Expr b);

  const std::vector<Node>& nodes() const { return nodes_; }
  /// The value if the expression is a literal constant (after folding of constants, which the
  /// factories do where it can't fail), else nothing.
  std::optional<int64_t> constant() const;
  bool is_constant() const { return constant().has_value(); }
  std::set<std::string> vars() const;
  bool uses(std::string_view name) const;

  /// Prints with the fewest parentheses; parse(str()) gives an equal expression.
  std::string str() const;
  /// Structural equality; see `same` for equality of meaning.
  friend bool operator==(const Expr&, const Expr&) = default;

 private:
  std::vector<Node> nodes_;
};

Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);

/// What a variable stands for, or nothing if it is unknown.
using Lookup = std::function<std::optional<int64_t>(std::string_view)>;

struct EvalResult {
  std::optional<int64_t> value;
  std::string error;  // "division by zero in 'world / (rank - 1)'", "unknown name 'q'"
};
EvalResult evaluate(const Expr& e, const Lookup& lookup);

/// Replaces variables by constants where `lookup` knows them, and folds.
Expr substitute(const Expr& e, const Lookup& lookup);

/// The canonical form: a sum of products with integer coefficients over atoms (variables, and
/// quotients, remainders, comparisons of canonical forms), in a fixed order. Two expressions with
/// the same canonical form are equal for all values.
Expr canonical(const Expr& e);
inline bool same(const Expr& a, const Expr& b) { return canonical(a) == canonical(b); }

/// e / n as an expression, if e's form shows that it is a multiple of n: each term's coefficient is
/// a multiple.
std::optional<Expr> divide_exact(const Expr& e, int64_t n);

/// The range of an expression's values, both ends included, given the ranges of its variables. It
/// is sound: no value lies outside. It is exact where no variable occurs twice, and where at most
/// 16,384 values have to be tried; a variable in which the expression is linear needs two.
struct Interval {
  int64_t lo = 0, hi = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};
/// The middle of the range, rounded down; doesn't overflow.
int64_t middle(Interval range);
using RangeLookup = std::function<std::optional<Interval>(std::string_view)>;
/// Nothing if a variable is unknown, a divisor may be zero or a bound overflows.
std::optional<Interval> bounds(const Expr& e, const RangeLookup& lookup);

/// The value of `e` for the variables' values in `lookup`, clamped to `range`; the middle of
/// `range` where `e` has no value there. For costs.
int64_t typical_value(const Expr& e, const Lookup& lookup, Interval range);

struct ParseExprResult {
  std::optional<Expr> expr;
  std::string error;    // "expected an operand, found ')'"
  size_t error_at = 0;  // byte offset in the text
  size_t error_length = 1;
};
/// Parses the whole of `text`.
ParseExprResult parse_expr(std::string_view text);
/// Parses the longest expression at the start of `text`; `end` is where it stopped. For the DSL,
/// which embeds expressions.
ParseExprResult parse_expr_prefix(std::string_view text, size_t& end);

/// An identifier of graph-format.md: a letter or '_', then letters, digits, '_', with dots between
/// parts ("layers.0.w" is one: a part after a dot may start with a digit).
bool is_identifier(std::string_view text);

}  // namespace maco::ir
