#include "compiler/ops/matmul_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ir/check.h"

namespace maco::ops {

using functions::MatmulMethod;

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_above(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// Microseconds of the SM with the most tiles.
double estimate(const MatmulShape& s, MatmulMethod method, int64_t rows, MatmulTiles t,
                const cost::Machine& m, int32_t sms) {
  const int64_t tiles = ceil_div(rows, t.BM) * ceil_div(s.N, t.BN);
  const cost::Work work = functions::matmul_work({.method = method,
                                                  .rows = rows,
                                                  .K = s.K,
                                                  .BM = t.BM,
                                                  .BN = t.BN,
                                                  .a_bytes = s.a_bytes,
                                                  .b_bytes = s.b_bytes},
                                                 m);
  return static_cast<double>(ceil_div(tiles, sms)) * cost::microseconds(work, m, sms);
}

bool is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::vector<MatmulTiles> candidates_of(const MatmulShape& s, MatmulMethod method,
                                       const cost::Machine& machine) {
  std::vector<MatmulTiles> candidates;
  const auto consider = [&](int64_t bm, int64_t bn) {
    if (refuse_matmul(s, method, {bm, bn}, machine).empty()) candidates.push_back({bm, bn});
  };
  if (method == MatmulMethod::Dot) {
    const int64_t unit = functions::matmul_column_step(s.N, s.transpose_b);
    for (int64_t bn = unit; bn <= 256 && bn < s.N + unit; bn += unit)
      consider(power_above(s.max_rows), bn);
    return candidates;
  }
  for (int64_t bm = 16; bm <= 128 && bm < 2 * std::max<int64_t>(s.max_rows, 16); bm *= 2)
    for (int64_t bn = s.transpose_b ? 16 : functions::matmul_slice(s.N); bn <= 128; bn *= 2)
      if (bn == 16 || bn < 2 * s.N || candidates.empty()) consider(bm, bn);
  return candidates;
}

}  // namespace

MatmulMethod choose_matmul_method(const MatmulShape& s) {
  if (s.plan_rows.hi <= functions::kDotRows) return MatmulMethod::Dot;
  return s.plan_rows.lo > functions::kDotRows ? MatmulMethod::Block : MatmulMethod::ByRows;
}

std::string refuse_matmul(const MatmulShape& s, MatmulMethod method, MatmulTiles t,
                          const cost::Machine& machine) {
  if (method == MatmulMethod::Dot) {
    const int64_t unit = functions::matmul_column_step(s.N, s.transpose_b);
    if (s.plan_rows.hi > functions::kDotRows)
      return fmt::format("method 'dot' takes up to {} rows, not {}", functions::kDotRows,
                         s.plan_rows.hi);
    if (t.BM > functions::kDotRows || !is_power(t.BM))
      return fmt::format("a tile of method 'dot' has 1, 2, 4 or {} rows, not {}",
                         functions::kDotRows, t.BM);
    if (t.BN > 256 || t.BN % unit != 0)
      return fmt::format("a tile of this product has a multiple of {} columns, at most 256, not {}",
                         unit, t.BN);
    return "";
  }
  const auto is_extent = [](int64_t n) { return n >= 16 && n <= 128 && is_power(n); };
  if (!is_extent(t.BM) || !is_extent(t.BN))
    return fmt::format(
        "a tile of method '{}' has 16, 32, 64 or 128 rows and columns, not {} and {}",
        functions::name(method), t.BM, t.BN);
  if (method == MatmulMethod::ByRows &&
      t.BN % functions::matmul_column_step(s.N, s.transpose_b) != 0)
    return fmt::format("a tile of this product has a multiple of {} columns, not {}",
                       functions::matmul_column_step(s.N, s.transpose_b), t.BN);
  if (!functions::matmul_fits(t.BN, s.b_bytes, s.transpose_b, machine.page_bytes))
    return fmt::format("a page of {} bytes has no room for a slice of {} columns",
                       machine.page_bytes, t.BN);
  return "";
}

std::optional<MatmulTiles> choose_matmul_tiles(const MatmulShape& s, MatmulMethod method,
                                               const cost::Machine& machine, int32_t sms) {
  const std::vector<MatmulTiles> candidates = candidates_of(s, method, machine);
  if (candidates.empty()) return std::nullopt;

  // Where dims decide, few rows must be quick too: relative to the best for each.
  std::vector<int64_t> sizes = {s.max_rows};
  if (s.min_rows < s.max_rows) sizes.push_back(s.min_rows);
  std::vector<double> total(candidates.size(), 0);
  for (int64_t rows : sizes) {
    std::vector<double> times;
    for (const MatmulTiles& t : candidates)
      times.push_back(estimate(s, method, rows, t, machine, sms));
    const double best = *std::min_element(times.begin(), times.end());
    for (size_t i = 0; i < times.size(); ++i) total[i] += times[i] / best;
  }
  // Of equals the largest: fewer tasks.
  size_t chosen = 0;
  for (size_t i = 1; i < candidates.size(); ++i)
    if (total[i] <= total[chosen] * (1 + 1e-9)) chosen = i;
  return candidates[chosen];
}

}  // namespace maco::ops
