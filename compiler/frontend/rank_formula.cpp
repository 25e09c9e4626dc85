// rank_formula.cpp: finds formulas for values that differ from rank to rank.
//
// A form is a list of terms with unknown factors: a * rank + b, a * ((rank + k) % world) + b for
// each k, and so on. Elimination over the integers finds the factors or shows that the form doesn't
// fit. The result is parsed as an expression and evaluated on every rank.

#include "compiler/frontend/rank_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/expr.h"

namespace maco::frontend {

namespace {

int64_t floor_mod(int64_t a, int64_t n) { return ((a % n) + n) % n; }

/// Integers x and a last number c, such that the sum of x[j] * columns[j][i] is values[i] - c for
/// all i; nothing if there are none, or more than one solution.
std::optional<std::vector<int64_t>> solve(const std::vector<const std::vector<int64_t>*>& columns,
                                          const std::vector<int64_t>& values) {
  const size_t n = columns.size();
  // Each row is the difference from the first rank's row, so that the constant cancels out.
  std::vector<std::vector<int64_t>> pivots;
  std::vector<size_t> pivot_columns;
  for (size_t i = 1; i < values.size(); ++i) {
    std::vector<int64_t> row(n + 1);
    for (size_t j = 0; j < n; ++j) row[j] = (*columns[j])[i] - (*columns[j])[0];
    row[n] = values[i] - values[0];
    for (size_t p = 0; p < pivots.size(); ++p) {
      const int64_t a = pivots[p][pivot_columns[p]], b = row[pivot_columns[p]];
      if (b == 0) continue;
      int64_t divisor = 0;
      for (size_t j = 0; j <= n; ++j) {
        row[j] = row[j] * a - pivots[p][j] * b;
        divisor = std::gcd(divisor, row[j]);
      }
      if (divisor > 1)
        for (int64_t& x : row) x /= divisor;
    }
    size_t column = 0;
    while (column < n && row[column] == 0) ++column;
    if (column < n) {
      pivots.push_back(std::move(row));
      pivot_columns.push_back(column);
    } else if (row[n] != 0) {
      return std::nullopt;
    }
  }
  if (pivots.size() < n) return std::nullopt;
  std::vector<int64_t> x(n + 1);
  for (size_t p = n; p-- > 0;) {
    int64_t rest = pivots[p][n];
    for (size_t j = 0; j < n; ++j)
      if (j != pivot_columns[p]) rest -= pivots[p][j] * x[j];
    if (rest % pivots[p][pivot_columns[p]] != 0) return std::nullopt;
    x[pivot_columns[p]] = rest / pivots[p][pivot_columns[p]];
  }
  x[n] = values[0];
  for (size_t j = 0; j < n; ++j) x[n] -= x[j] * (*columns[j])[0];
  return x;
}

}  // namespace

std::string RankFormula::text() const {
  struct Part {
    int64_t factor;
    std::string text;
  };
  std::vector<Part> parts;
  const auto add = [&](int64_t factor, const std::string& what, bool binds) {
    if (factor == 0) return;
    const int64_t size = factor < 0 ? -factor : factor;
    if (what.empty())
      parts.push_back({factor, fmt::format("{}", size)});
    else if (size == 1)
      parts.push_back({factor, what});
    else
      parts.push_back({factor, fmt::format("{} * {}", size, binds ? what : "(" + what + ")")});
  };
  const size_t ahead = terms.size() - (steps ? 1 : 0);
  for (size_t i = 0; i < ahead; ++i) add(terms[i].factor, terms[i].text, terms[i].binds);
  add(constant, "", true);
  if (steps) add(terms.back().factor, terms.back().text, terms.back().binds);
  if (parts.empty()) return "0";
  // "4 - rank" rather than "-rank + 4".
  const auto positive =
      std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.factor > 0; });
  if (positive != parts.end()) std::rotate(parts.begin(), positive, positive + 1);
  std::string result;
  for (const Part& p : parts) {
    if (result.empty())
      result = p.factor < 0 ? "-" : "";
    else
      result += p.factor < 0 ? " - " : " + ";
    result += p.text;
  }
  return result;
}

RankFormulas::RankFormulas(std::vector<int32_t> ranks, int32_t world)
    : ranks_(std::move(ranks)), world_(world) {
  const int64_t n = world;
  const auto rank = [&] {
    return basis("rank", true, [](int64_t r, int64_t, int64_t) { return r; }, 0, n);
  };
  const auto step = [&](int64_t k) {
    return basis(
        fmt::format("(rank <= {})", k), true,
        [](int64_t r, int64_t last, int64_t) -> int64_t { return r <= last ? 1 : 0; }, k, n);
  };
  add_form({});
  add_form({rank()}, 1);
  for (int64_t k = 1; k < n; ++k)
    add_form({basis(
                 fmt::format("(rank + {}) % world", k), false,
                 [](int64_t r, int64_t by, int64_t m) { return (r + by) % m; }, k, n)},
             1);
  add_form({rank()}, -1);
  // "The i-th rank other than this one" is i + (rank <= i).
  for (int64_t k = 0; k + 1 < n; ++k) add_form({step(k)}, 0, true);
  for (int64_t k = 0; k < n; ++k)
    add_form({basis(
                 fmt::format("({} - rank) % world", k), false,
                 [](int64_t r, int64_t from, int64_t m) { return floor_mod(from - r, m); }, k, n)},
             1);
  for (int64_t k = 0; k + 1 < n; ++k) add_form({rank(), step(k)}, 0, true);
  // The partner of a butterfly, rank ^ d, is rank + d - 2 * d * (rank / d % 2).
  for (int64_t d = 1; d < n; d *= 2) {
    const auto odd = [&] {
      return basis(
          d == 1 ? "rank % 2" : fmt::format("rank / {} % 2", d), false,
          [](int64_t r, int64_t by, int64_t) { return r / by % 2; }, d, n);
    };
    add_form({odd()});
    add_form({rank(), odd()});
  }
  // Ranks in nodes of g.
  for (int64_t g = 2; g < n; ++g) {
    if (n % g != 0) continue;
    const auto node = [&] {
      return basis(
          fmt::format("rank / {}", g), false, [](int64_t r, int64_t by, int64_t) { return r / by; },
          g, n);
    };
    const auto local = [&](int64_t k) {
      return basis(
          k == 0 ? fmt::format("rank % {}", g) : fmt::format("(rank + {}) % {}", k, g), false,
          [](int64_t r, int64_t by, int64_t m) { return (r + by) % m; }, k, g);
    };
    const auto local_step = [&](int64_t k) {
      return basis(
          fmt::format("(rank % {} <= {})", g, k), true,
          [](int64_t r, int64_t last, int64_t m) -> int64_t { return r % m <= last; }, k, g);
    };
    add_form({node()});
    for (int64_t k = 0; k < g; ++k) add_form({local(k)});
    for (int64_t k = 0; k < g; ++k) add_form({node(), local(k)});
    for (int64_t k = 0; k + 1 < g; ++k) {
      add_form({local_step(k)}, 0, true);
      add_form({node(), local_step(k)}, 0, true);
      add_form({node(), local(0), local_step(k)}, 0, true);
    }
  }
}

RankFormulas::Basis RankFormulas::basis(std::string text, bool binds,
                                        int64_t (*value)(int64_t rank, int64_t k, int64_t n),
                                        int64_t k, int64_t n) const {
  Basis result{std::move(text), binds, {}};
  for (int32_t r : ranks_) result.values.push_back(value(r, k, n));
  return result;
}

void RankFormulas::add_form(std::vector<Basis> form, int sign, bool steps) {
  forms_.push_back({std::move(form), sign, steps});
}

const std::optional<RankFormula>& RankFormulas::find(const std::vector<int64_t>& values) {
  const auto [at, is_new] = found_.try_emplace(values);
  if (is_new) at->second = search(values);
  return at->second;
}

std::optional<RankFormula> RankFormulas::search(const std::vector<int64_t>& values) const {
  for (const Form& form : forms_) {
    std::vector<const std::vector<int64_t>*> columns;
    for (const Basis& b : form.terms) columns.push_back(&b.values);
    const auto factors = solve(columns, values);
    if (!factors || (form.sign > 0 && (*factors)[0] <= 0) || (form.sign < 0 && (*factors)[0] >= 0))
      continue;
    RankFormula formula;
    formula.constant = factors->back();
    formula.steps = form.steps;
    for (size_t j = 0; j < form.terms.size(); ++j)
      formula.terms.push_back({(*factors)[j], form.terms[j].text, form.terms[j].binds});
    if (form.steps && formula.terms.back().factor < 0) {
      // -2 * (rank <= 3) is 2 * (rank > 3) - 2.
      RankFormula::Term& last = formula.terms.back();
      formula.constant += last.factor;
      last.factor = -last.factor;
      last.text.replace(last.text.find("<="), 2, ">");
    }
    if (holds(formula, values)) return formula;
  }
  return std::nullopt;
}

bool RankFormulas::holds(const RankFormula& formula, const std::vector<int64_t>& values) const {
  const auto parsed = ir::parse_expr(formula.text());
  if (!parsed.expr) return false;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto lookup = [&](std::string_view name) -> std::optional<int64_t> {
      if (name == "rank") return ranks_[i];
      if (name == "world") return world_;
      return std::nullopt;
    };
    if (ir::evaluate(*parsed.expr, lookup).value != values[i]) return false;
  }
  return true;
}

}  // namespace maco::frontend
