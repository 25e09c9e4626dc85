#include "ir/expr.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "tests/catch.h"

using namespace maco::ir;

namespace {

using Kind = Expr::Kind;
using Values = std::map<std::string, int64_t, std::less<>>;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Lookup lookup_in(const Values& values) {
  return [&values](std::string_view name) -> std::optional<int64_t> {
    auto it = values.find(name);
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
}

Expr parse(std::string_view text) {
  ParseExprResult r = parse_expr(text);
  INFO(text << ": " << r.error);
  REQUIRE(r.expr);
  return *r.expr;
}

std::optional<int64_t> value(std::string_view text, const Values& values = {}) {
  return evaluate(parse(text), lookup_in(values)).value;
}

/// An expression that is also its own naive meaning, in 128 bits.
struct Tree {
  Kind kind = Kind::Const;
  int64_t value = 0;
  std::string name;
  std::vector<Tree> children;

  Expr expr() const {
    if (kind == Kind::Const) return value;
    if (kind == Kind::Var) return Expr::var(name);
    if (children.size() == 1) return Expr::unary(kind, children[0].expr());
    return Expr::binary(kind, children[0].expr(), children[1].expr());
  }
  /// Nothing on overflow and division by zero.
  std::optional<int64_t> eval(const Values& values) const {
    if (kind == Kind::Const) return value;
    if (kind == Kind::Var) return values.at(name);
    auto a = children[0].eval(values);
    if (!a) return std::nullopt;
    if (kind == Kind::And && *a == 0) return 0;
    if (kind == Kind::Or && *a != 0) return 1;
    auto b = children.size() > 1 ? children[1].eval(values) : std::optional<int64_t>(0);
    if (!b) return std::nullopt;
    const __int128 x = *a, y = *b;
    __int128 r = 0;
    switch (kind) {
      case Kind::Neg: r = -x; break;
      case Kind::Not: r = x == 0; break;
      case Kind::Add: r = x + y; break;
      case Kind::Sub: r = x - y; break;
      case Kind::Mul: r = x * y; break;
      case Kind::Div:
      case Kind::Mod: {
        if (y == 0) return std::nullopt;
        __int128 q = x / y;
        while (q * y > x && y > 0) --q;
        while (q * y < x && y < 0) --q;
        r = kind == Kind::Div ? q : x - q * y;
        break;
      }
      case Kind::Eq: r = x == y; break;
      case Kind::Ne: r = x != y; break;
      case Kind::Lt: r = x < y; break;
      case Kind::Le: r = x <= y; break;
      case Kind::Gt: r = x > y; break;
      case Kind::Ge: r = x >= y; break;
      case Kind::And:
      case Kind::Or: r = y != 0; break;
      case Kind::Const:
      case Kind::Var: break;
    }
    if (r > kMax || r < kMin) return std::nullopt;
    return static_cast<int64_t>(r);
  }
};

const std::vector<std::string> kNames = {"a", "b", "layers.0.n", "_c"};

Tree random_tree(std::mt19937_64& rng, int depth, bool large) {
  auto pick = [&](uint64_t n) { return rng() % n; };
  Tree t;
  if (depth == 0 || pick(6) == 0) {
    if (pick(2) == 0) {
      t.kind = Kind::Var;
      t.name = kNames[pick(kNames.size())];
    } else if (large && pick(3) == 0) {
      const int64_t extremes[] = {
          kMin, kMax, kMin + 1, kMax / 2, int64_t{1} << 40, -(int64_t{1} << 40)};
      t.value = extremes[pick(6)];
    } else {
      t.value = static_cast<int64_t>(pick(13)) - 6;
    }
    return t;
  }
  t.kind = static_cast<Kind>(static_cast<int>(Kind::Neg) + static_cast<int>(pick(15)));
  const bool unary = t.kind == Kind::Neg || t.kind == Kind::Not;
  t.children.push_back(random_tree(rng, depth - 1, large));
  if (!unary) t.children.push_back(random_tree(rng, depth - 1, large));
  return t;
}

Values random_values(std::mt19937_64& rng, bool large) {
  Values v;
  for (const std::string& name : kNames)
    v[name] = large && rng() % 4 == 0 ? static_cast<int64_t>(rng())
                                      : static_cast<int64_t>(rng() % 21) - 10;
  return v;
}

TEST_CASE("a typical value lies within its range, and is the middle of it where there is none") {
  const auto lookup = [](std::string_view n) -> std::optional<int64_t> {
    return n == "pos" ? std::optional<int64_t>(512) : std::nullopt;
  };
  const Expr pos = Expr::var("pos");
  CHECK(typical_value(pos + Expr(1), lookup, {1, 8192}) == 513);
  CHECK(typical_value(pos, lookup, {0, 100}) == 100);
  CHECK(typical_value(Expr::var("other"), lookup, {0, 8191}) == 4095);
  CHECK(middle({INT64_MIN, INT64_MAX}) == -1);
}

}  // namespace

TEST_CASE("expressions have C's precedence and Python's division", "[expr]") {
  CHECK(value("1 + 2 * 3") == 7);
  CHECK(value("(1 + 2) * 3") == 9);
  CHECK(value("10 - 2 - 3") == 5);
  CHECK(value("-7 / 2") == -4);
  CHECK(value("-7 % 2") == 1);
  CHECK(value("7 % -2") == -1);
  CHECK(value("7 / -2") == -4);
  CHECK(value("1 < 2 && 3 != 4 || 5 == 6") == 1);
  CHECK(value("!0 + 1") == 2);
  CHECK(value("rank == world - 1", {{"rank", 3}, {"world", 4}}) == 1);
  CHECK(value("-9223372036854775808") == kMin);
  CHECK(value("layers.0.n * 2", {{"layers.0.n", 21}}) == 42);
}

TEST_CASE("the right side of && and || counts only where it matters", "[expr]") {
  CHECK(value("x > 0 && 4 / x > 1", {{"x", 0}}) == 0);
  CHECK(value("x == 0 || 4 / x > 1", {{"x", 0}}) == 1);
  CHECK_FALSE(value("x >= 0 && 4 / x > 1", {{"x", 0}}));
}

TEST_CASE("what has no value says why", "[expr]") {
  auto error = [](std::string_view text, const Values& values) {
    return evaluate(parse(text), lookup_in(values)).error;
  };
  CHECK(error("world / (rank - 1) + 2", {{"world", 2}, {"rank", 1}}) ==
        "division by zero in 'world / (rank - 1)'");
  CHECK(error("1 + x % 0", {{"x", 1}}) == "division by zero in 'x % 0'");
  CHECK(error("x * x", {{"x", kMax}}) == "overflow in 'x * x'");
  CHECK(error("-x", {{"x", kMin}}) == "overflow in '-x'");
  CHECK(error("x / -1", {{"x", kMin}}) == "overflow in 'x / -1'");
  CHECK(error("x % -1", {{"x", kMin}}).empty());
  CHECK(error("p + q", {{"p", 1}}) == "unknown name 'q'");
}

TEST_CASE("syntax errors stand where the trouble is", "[expr]") {
  struct Case {
    std::string text, error;
    size_t at;
  };
  const Case cases[] = {
      {"", "expected an operand, found the end", 0},
      {"1 +", "expected an operand, found the end", 3},
      {"a b", "expected an operator, found 'b'", 2},
      {"(a", "expected ')', found the end", 2},
      {"a + )", "expected an operand, found ')'", 4},
      {"a < b < c", "comparisons don't chain; join them with '&&'", 6},
      {"a = b", "expected an operator, found '='; did you mean '=='?", 2},
      {"a and b", "expected an operator, found 'and'; did you mean '&&'?", 2},
      {"1.5", "expected an integer, found '1.5'", 0},
      {"2 * 3x", "expected an integer, found '3x'", 4},
      {"9223372036854775808", "'9223372036854775808' does not fit in 64 bits", 0},
      {"99999999999999999999", "'99999999999999999999' does not fit in 64 bits", 0},
      {"a..b", "expected an operator, found '..'", 1},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    ParseExprResult r = parse_expr(c.text);
    CHECK_FALSE(r.expr);
    CHECK(r.error == c.error);
    CHECK(r.error_at == c.at);
  }
  CHECK(parse_expr(std::string(100'000, '(')).error == "the expression is nested too deeply");
  CHECK(parse_expr(std::string(100'000, '-') + "x").error == "the expression is nested too deeply");
  std::string sum = "x";
  for (int i = 0; i < 20'000; ++i) sum += "+x";
  CHECK(parse_expr(sum).error == "the expression is too long");
}

TEST_CASE("a prefix ends where the expression does", "[expr]") {
  for (auto [text, end] :
       {std::pair<std::string, size_t>{"a + 1, b", 5}, {"x)", 1}, {"0..16", 1}, {"n == 2 {", 6}}) {
    size_t at = 0;
    INFO(text);
    REQUIRE(parse_expr_prefix(text, at).expr);
    CHECK(at == end);
  }
}

TEST_CASE("identifiers have dots between their parts", "[expr]") {
  for (const char* good : {"a", "_", "layers.0.w", "x1.y_2", "a.0"}) CHECK(is_identifier(good));
  for (const char* bad : {"", "0a", ".a", "a.", "a..b", "a b", "a-b", "\xc3\xa4"})
    CHECK_FALSE(is_identifier(bad));
}

TEST_CASE("printing uses few parentheses and reads back", "[expr]") {
  for (const char* text :
       {"a + b - c", "a - (b - c)", "-(a * b)", "-a * b", "a * (b + 1) % 4", "!(a == b) && c",
        "(a == b) == c", "a - -5", "(a || b) && c", "--a", "a / (b * c)"})
    CHECK(parse(text).str() == text);
  CHECK(parse("((a)) + (b * (c))").str() == "a + b * c");
  CHECK(parse("2 * 3 + n").str() == "6 + n");
}

TEST_CASE("random expressions mean what they say", "[expr]") {
  for (bool large : {false, true}) {
    std::mt19937_64 rng(large ? 7 : 11);
    for (int i = 0; i < 4000; ++i) {
      const Tree tree = random_tree(rng, 1 + i % 5, large);
      const Expr e = tree.expr();
      INFO(e.str());
      CHECK(parse(e.str()) == e);
      for (int k = 0; k < 4; ++k) {
        const Values values = random_values(rng, large);
        const auto expected = tree.eval(values);
        const EvalResult got = evaluate(e, lookup_in(values));
        CHECK(got.value == expected);
        CHECK(got.error.empty() == expected.has_value());

        // What a part of the variables makes known doesn't change the value; neither does the
        // canonical form.
        Values some = values;
        some.erase(kNames[static_cast<size_t>(k)]);
        const Expr partly = substitute(e, lookup_in(some));
        const auto after = evaluate(partly, lookup_in(values)).value;
        if (expected) CHECK(after == expected);
        if (!large && expected) CHECK(evaluate(canonical(e), lookup_in(values)).value == expected);
      }
    }
  }
}

TEST_CASE("the canonical form is stable", "[expr]") {
  for (bool large : {false, true}) {
    std::mt19937_64 rng(large ? 5 : 3);
    for (int i = 0; i < 4000; ++i) {
      const Expr e = random_tree(rng, 1 + i % 6, large).expr();
      const Expr c = canonical(e);
      INFO(e.str() << "  ->  " << c.str());
      CHECK(canonical(c) == c);
      CHECK(parse(c.str()) == c);
    }
  }
}

TEST_CASE("expressions that are always equal have one canonical form", "[expr]") {
  const std::pair<const char*, const char*> equal[] = {
      {"a + b", "b + a"},       {"2 * (a + b)", "a + b + b + a"},
      {"a - a", "0"},           {"(4 * a + 3) / 4", "a"},
      {"4 * a / 4", "a"},       {"(world * n) / world", "n"},
      {"(4 * a + 5) % 4", "1"}, {"2 * a / 4", "a / 2"},
      {"a / -2", "-a / 2"},     {"a * b * 3", "3 * b * a"},
      {"a < b", "b > a"},       {"a <= b", "a < b + 1"},
      {"!(a == b)", "a != b"},  {"a == b", "b == a"},
      {"!!(a < b)", "a < b"},   {"a && a", "a != 0"},
      {"1 && a < b", "a < b"},  {"a * (b + c)", "a * b + a * c"},
  };
  for (auto [a, b] : equal) {
    INFO(a << " and " << b << ": " << canonical(parse(a)).str() << " and "
           << canonical(parse(b)).str());
    CHECK(same(parse(a), parse(b)));
  }
  CHECK_FALSE(same(parse("a / 2 * 2"), parse("a")));
  CHECK_FALSE(same(parse("a + 1"), parse("a")));
  CHECK(canonical(parse("1 + 2 * tokens - 0")).str() == "2 * tokens + 1");
}

TEST_CASE("bounds hold for every value in range", "[expr]") {
  std::mt19937_64 rng(17);
  for (int i = 0; i < 4000; ++i) {
    const Tree tree = random_tree(rng, 1 + i % 4, i % 3 == 0);
    const Expr e = tree.expr();
    std::map<std::string, Interval, std::less<>> ranges;
    for (const std::string& name : kNames) {
      const int64_t lo = static_cast<int64_t>(rng() % 9) - 4;
      ranges[name] = {lo, lo + static_cast<int64_t>(rng() % 4)};
    }
    const auto range = bounds(
        e, [&](std::string_view n) -> std::optional<Interval> { return ranges.find(n)->second; });
    INFO(e.str());
    if (!range) continue;
    for (int k = 0; k < 30; ++k) {
      Values values;
      for (const auto& [name, r] : ranges)
        values[name] = r.lo + static_cast<int64_t>(rng() % static_cast<uint64_t>(r.hi - r.lo + 1));
      const auto v = evaluate(e, lookup_in(values));
      INFO(v.error << range->lo << ".." << range->hi);
      REQUIRE(v.value);  // bounds say that no divisor is zero and nothing overflows
      CHECK(range->lo <= *v.value);
      CHECK(*v.value <= range->hi);
    }
  }
}

TEST_CASE("bounds are met where a variable occurs twice", "[expr]") {
  std::mt19937_64 rng(19);
  int tried = 0;
  for (int i = 0; i < 4000; ++i) {
    const Expr e = random_tree(rng, 2 + i % 3, i % 3 == 0).expr();
    const auto variables = std::count_if(e.nodes().begin(), e.nodes().end(),
                                         [](const auto& n) { return n.kind == Expr::Kind::Var; });
    if (variables == static_cast<std::ptrdiff_t>(e.vars().size())) continue;
    std::map<std::string, Interval, std::less<>> ranges;
    for (const std::string& name : kNames) {
      const int64_t lo = static_cast<int64_t>(rng() % 9) - 4;
      ranges[name] = {lo, lo + static_cast<int64_t>(rng() % 6)};
    }
    std::optional<Interval> met;
    bool always = true;
    Values values;
    const std::function<void(size_t)> meet = [&](size_t n) {
      if (n < kNames.size()) {
        const Interval r = ranges[kNames[n]];
        for (int64_t v = r.lo; v <= r.hi; ++v) {
          values[kNames[n]] = v;
          meet(n + 1);
        }
        return;
      }
      const auto v = evaluate(e, lookup_in(values)).value;
      always = always && v;
      if (v) met = met ? Interval{std::min(met->lo, *v), std::max(met->hi, *v)} : Interval{*v, *v};
    };
    meet(0);
    INFO(e.str());
    CHECK(bounds(e, [&](std::string_view n) -> std::optional<Interval> {
            return ranges.find(n)->second;
          }) == (always ? met : std::nullopt));
    ++tried;
  }
  CHECK(tried > 500);
}

TEST_CASE("bounds are tight where it is easy", "[expr]") {
  auto range = [](std::string_view text) {
    return bounds(parse(text), [](std::string_view n) -> std::optional<Interval> {
      if (n == "n") return Interval{1, 64};
      if (n == "r") return Interval{0, 3};
      return std::nullopt;
    });
  };
  CHECK(range("4 * n + r") == Interval{4, 259});
  CHECK(range("n % 16") == Interval{0, 15});
  CHECK(range("r % 16") == Interval{0, 3});
  CHECK(range("64 / n") == Interval{1, 64});
  CHECK(range("n > 0") == Interval{1, 1});
  CHECK(range("r == 9") == Interval{0, 0});
  // Variables that occur twice.
  CHECK(range("4 * n - r * n - n") == Interval{0, 192});
  CHECK(range("n - (n / 2 + 1)") == Interval{0, 31});
  CHECK(range("(-r - 1) / 2 + 2") == Interval{0, 1});
  CHECK(range("r == 0 || 5 / r") == Interval{1, 1});
  CHECK(range("n * n - 64 * n") == Interval{-1024, 0});
  CHECK_FALSE(range("n / r"));
  CHECK_FALSE(range("r / (r - 2) - r"));
  CHECK_FALSE(range("unknown"));
  CHECK_FALSE(range("n * 9223372036854775807"));
}
