// The expression parser: recursive descent, one function for each level of precedence.
#include <fmt/format.h>

#include <limits>

#include "ir/expr.h"

namespace maco::ir {

namespace {

using Kind = Expr::Kind;

constexpr int kMaxDepth = 200;
constexpr size_t kMaxNodes = 10'000;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The length of the identifier at the start of `text`, 0 if there is none.
size_t identifier_length(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return 0;
  size_t i = 1;
  auto word = [&](size_t at) {
    return at < text.size() && (is_letter(text[at]) || is_digit(text[at]));
  };
  while (word(i) || (i < text.size() && text[i] == '.' && word(i + 1))) ++i;
  return i;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  ParseExprResult run(bool whole, size_t& end) {
    std::optional<Expr> e = parse_or();
    end = after_;
    if (e && whole) {
      skip_space();
      if (at_ < text_.size()) e = leftover();
    }
    if (!e) return {std::nullopt, error_, error_at_, error_length_};
    return {std::move(e), "", 0, 1};
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  void advance(size_t n) {
    at_ += n;
    after_ = at_;
  }

  std::nullopt_t fail(std::string message, size_t at, size_t length) {
    if (error_.empty()) {
      error_ = std::move(message);
      error_at_ = at;
      error_length_ = length;
    }
    return std::nullopt;
  }

  /// The word or symbol at at_, for messages.
  std::string_view found() const {
    std::string_view rest = text_.substr(at_);
    size_t n = identifier_length(rest);
    if (n == 0)
      while (n < rest.size() && (is_digit(rest[n]) || rest[n] == '.' || is_letter(rest[n]))) ++n;
    if (rest.substr(0, 2) == "..") n = 2;
    return rest.substr(0, n == 0 ? 1 : n);
  }
  std::nullopt_t expected(std::string_view what) {
    skip_space();
    if (at_ >= text_.size()) return fail(fmt::format("expected {}, found the end", what), at_, 1);
    return fail(fmt::format("expected {}, found '{}'", what, found()), at_, found().size());
  }
  std::nullopt_t leftover() {
    const std::string_view word = found();
    std::string_view hint;
    if (word == "and" || word == "&") hint = "; did you mean '&&'?";
    if (word == "or" || word == "|") hint = "; did you mean '||'?";
    if (word == "=") hint = "; did you mean '=='?";
    return fail(fmt::format("expected an operator, found '{}'{}", word, hint), at_, word.size());
  }

  /// Consumes `symbol` if it is next.
  bool take(std::string_view symbol) {
    skip_space();
    if (text_.substr(at_, symbol.size()) != symbol) return false;
    advance(symbol.size());
    return true;
  }

  std::optional<Expr> join(Kind kind, std::optional<Expr> a, std::optional<Expr> b) {
    if (!a || !b) return std::nullopt;
    if (a->nodes().size() + b->nodes().size() >= kMaxNodes)
      return fail("the expression is too long", 0, text_.size());
    return Expr::binary(kind, std::move(*a), std::move(*b));
  }

  std::optional<Expr> parse_or() {
    std::optional<Expr> e = parse_and();
    while (e && take("||")) e = join(Kind::Or, std::move(e), parse_and());
    return e;
  }
  std::optional<Expr> parse_and() {
    std::optional<Expr> e = parse_comparison();
    while (e && take("&&")) e = join(Kind::And, std::move(e), parse_comparison());
    return e;
  }

  std::optional<Kind> take_comparison() {
    if (take("==")) return Kind::Eq;
    if (take("!=")) return Kind::Ne;
    if (take("<=")) return Kind::Le;
    if (take(">=")) return Kind::Ge;
    if (take("<")) return Kind::Lt;
    if (take(">")) return Kind::Gt;
    return std::nullopt;
  }
  std::optional<Expr> parse_comparison() {
    std::optional<Expr> e = parse_sum();
    if (!e) return e;
    auto kind = take_comparison();
    if (!kind) return e;
    e = join(*kind, std::move(e), parse_sum());
    const size_t at = at_;
    if (e && take_comparison())
      return fail("comparisons don't chain; join them with '&&'", at, after_ - at);
    return e;
  }

  std::optional<Expr> parse_sum() {
    std::optional<Expr> e = parse_product();
    while (e) {
      if (take("+"))
        e = join(Kind::Add, std::move(e), parse_product());
      else if (take("-"))
        e = join(Kind::Sub, std::move(e), parse_product());
      else
        break;
    }
    return e;
  }
  std::optional<Expr> parse_product() {
    std::optional<Expr> e = parse_unary();
    while (e) {
      if (take("*"))
        e = join(Kind::Mul, std::move(e), parse_unary());
      else if (take("/"))
        e = join(Kind::Div, std::move(e), parse_unary());
      else if (take("%"))
        e = join(Kind::Mod, std::move(e), parse_unary());
      else
        break;
    }
    return e;
  }

  std::optional<Expr> nested(std::optional<Expr> (Parser::*parse)()) {
    if (depth_ >= kMaxDepth) return fail("the expression is nested too deeply", at_, 1);
    ++depth_;
    std::optional<Expr> e = (this->*parse)();
    --depth_;
    return e;
  }

  std::optional<Expr> parse_unary() {
    skip_space();
    if (take("-")) {
      skip_space();
      // The smallest integer has no positive counterpart.
      if (at_ < text_.size() && is_digit(text_[at_])) return parse_number(true);
      std::optional<Expr> e = nested(&Parser::parse_unary);
      return e ? std::optional(Expr::unary(Kind::Neg, std::move(*e))) : std::nullopt;
    }
    if (text_.substr(at_, 2) != "!=" && take("!")) {
      std::optional<Expr> e = nested(&Parser::parse_unary);
      return e ? std::optional(Expr::unary(Kind::Not, std::move(*e))) : std::nullopt;
    }
    return parse_primary();
  }

  std::optional<Expr> parse_number(bool negative) {
    const std::string_view digits = found();
    uint64_t value = 0;
    bool too_large = false;
    size_t n = 0;
    for (; n < digits.size() && is_digit(digits[n]); ++n) {
      const auto digit = static_cast<uint64_t>(digits[n] - '0');
      too_large |= __builtin_mul_overflow(value, uint64_t{10}, &value) ||
                   __builtin_add_overflow(value, digit, &value);
    }
    const bool range = text_.substr(at_ + n, 2) == "..";  // '0..16'
    if (n < digits.size() && !range) return expected("an integer");
    const uint64_t limit = uint64_t{1} << 63;
    if (too_large || value > limit - (negative ? 0 : 1))
      return fail(fmt::format("'{}' does not fit in 64 bits", digits.substr(0, n)), at_, n);
    advance(n);
    return Expr(static_cast<int64_t>(negative ? uint64_t{0} - value : value));
  }

  std::optional<Expr> parse_primary() {
    skip_space();
    if (at_ >= text_.size()) return expected("an operand");
    if (is_digit(text_[at_])) return parse_number(false);
    if (const size_t n = identifier_length(text_.substr(at_)); n > 0) {
      Expr e = Expr::var(std::string(text_.substr(at_, n)));
      advance(n);
      return e;
    }
    if (take("(")) {
      std::optional<Expr> e = nested(&Parser::parse_or);
      if (!e) return e;
      if (!take(")")) return expected("')'");
      return e;
    }
    return expected("an operand");
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t after_ = 0;  // end of the last thing consumed
  int depth_ = 0;
  std::string error_;
  size_t error_at_ = 0, error_length_ = 1;
};

}  // namespace

ParseExprResult parse_expr(std::string_view text) {
  size_t end = 0;
  return Parser(text).run(true, end);
}

ParseExprResult parse_expr_prefix(std::string_view text, size_t& end) {
  return Parser(text).run(false, end);
}

bool is_identifier(std::string_view text) {
  return !text.empty() && identifier_length(text) == text.size();
}

}  // namespace maco::ir
