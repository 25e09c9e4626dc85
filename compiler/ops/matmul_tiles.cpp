#include "compiler/ops/matmul_tiles.h"

#include <algorithm>
#include <vector>

#include "compiler/functions/matmul.h"
#include "ir/check.h"

namespace maco::ops {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_above(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// The width of a slice that lanes share when b is not transposed: as MatmulPages::kSliceCols.
int64_t slice_cols(int64_t n) { return n >= 4096 ? 64 : n >= 1024 ? 32 : 16; }

// Microseconds of the SM with the most tiles.
double estimate(const MatmulShape& s, int64_t rows, MatmulTiles t, const cost::Machine& m,
                int32_t sms) {
  const int64_t tiles = ceil_div(rows, t.BM) * ceil_div(s.N, t.BN);
  const cost::Work work = functions::matmul_work(
      {.rows = rows, .K = s.K, .BM = t.BM, .BN = t.BN, .a_bytes = s.a_bytes, .b_bytes = s.b_bytes},
      m);
  return static_cast<double>(ceil_div(tiles, sms)) * cost::microseconds(work, m, sms);
}

// Does b's slice of BN columns fit in a page, with the spacing that MatmulPages gives it?
bool fits(const MatmulShape& s, int64_t bn, int64_t page_bytes) {
  return s.transpose_b ? page_bytes / bn >= 48 : page_bytes / (bn * s.b_bytes) >= 8;
}

}  // namespace

MatmulTiles choose_matmul_tiles(const MatmulShape& s, const cost::Machine& machine, int32_t sms) {
  std::vector<MatmulTiles> candidates;
  if (s.plan_rows <= functions::kFewRows) {
    const int64_t unit = s.transpose_b ? 8 : slice_cols(s.N);
    for (int64_t bn = unit; bn <= 256 && bn < s.N + unit; bn += unit)
      candidates.push_back({power_above(s.max_rows), bn});
  } else {
    for (int64_t bm = 16; bm <= 128 && bm < 2 * std::max<int64_t>(s.max_rows, 16); bm *= 2)
      for (int64_t bn = s.transpose_b ? 16 : slice_cols(s.N); bn <= 128; bn *= 2)
        if (fits(s, bn, machine.page_bytes) && (bn == 16 || bn < 2 * s.N || candidates.empty()))
          candidates.push_back({bm, bn});
  }
  MACO_CHECK(!candidates.empty(), "no tile of a matrix product fits in a page");

  // Where dims decide, few rows must be quick too: relative to the best for each.
  std::vector<int64_t> sizes = {s.max_rows};
  if (s.min_rows < s.max_rows) sizes.push_back(s.min_rows);
  std::vector<double> total(candidates.size(), 0);
  for (int64_t rows : sizes) {
    std::vector<double> times;
    for (const MatmulTiles& t : candidates) times.push_back(estimate(s, rows, t, machine, sms));
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
