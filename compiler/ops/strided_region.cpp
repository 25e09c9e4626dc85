#include "compiler/ops/strided_region.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

namespace maco::ops {

namespace {

int64_t area(const ir::Region& r) { return (r.r1 - r.r0) * (r.c1 - r.c0); }

// The smallest box in rows of `pitch` elements that holds all elements; nothing if one would wrap
// into the next row.
std::optional<ir::Region> matrix_of(const Mat& m, const Box& box,
                                    const std::array<int64_t, 4>& strides, const Offset& offset,
                                    int64_t pitch) {
  if (offset.rank_step % pitch != 0) return std::nullopt;
  int64_t r0 = offset.base / pitch, c0 = offset.base % pitch, r1 = r0,
          c1 = c0;  // r1 and c1: the last row and column
  const auto extend = [&](int64_t stride, int64_t first, int64_t last) {
    if (first == last && first == 0) return true;
    if (stride % pitch == 0) {
      r0 += first * (stride / pitch);
      r1 += last * (stride / pitch);
    } else if (stride < pitch) {
      c0 += first * stride;
      c1 += last * stride;
    } else {
      return false;
    }
    return true;
  };
  for (size_t i = 0; i < 4; ++i)
    if (!extend(strides[i], box.lo[i], box.hi[i] - 1)) return std::nullopt;
  if (offset.spread % pitch == 0) {
    r1 += offset.spread / pitch;
  } else {
    c1 += offset.spread;
  }
  const int64_t wraps = c0 / pitch;
  if (c1 - wraps * pitch >= pitch) return std::nullopt;
  ir::Region r;
  r.buffer = m.buffer;
  r.pitch = pitch;
  r.r0 = r0 + wraps;
  r.r1 = r1 + wraps + 1;
  r.c0 = c0 - wraps * pitch;
  r.c1 = c1 - wraps * pitch + 1;
  r.block = {.rows = offset.rank_step / pitch};
  // The hull of what dims allow may reach beyond the tensor, where nothing is touched.
  const int64_t n = m.max_elements();
  while (offset.rank_step == 0 && r.r1 - r.r0 > 1 && (r.r1 - 1) * pitch + r.c0 >= n) --r.r1;
  if ((r.r1 - 1) * pitch + r.c1 > n) return std::nullopt;
  return r;
}

// Elements [begin, end) as whole rows or a part of one row of the natural shape; else as a single
// row.
ir::Region run_of(const Mat& m, int64_t begin, int64_t end) {
  const int64_t n = m.cols;
  if (begin % n == 0 && end % n == 0) return box(m, begin / n, end / n, 0, n);
  if (begin / n == (end - 1) / n)
    return box(m, begin / n, begin / n + 1, begin % n, (end - 1) % n + 1);
  return flat(m, begin, end);
}

}  // namespace

int64_t Box::count() const {
  int64_t n = 1;
  for (size_t i = 0; i < 4; ++i) n *= hi[i] - lo[i];
  return n;
}

Offset resolve_offset(const TileContext& c, const ir::Expr& offset, int64_t unit) {
  if (auto v = offset.constant()) return {*v * unit, 0, 0};
  if (offset.vars() == std::set<std::string>{"rank"}) {
    std::vector<int64_t> at;
    for (int64_t r = 0; r < c.world(); ++r) {
      const auto value = ir::evaluate(offset, [&](std::string_view) { return r; }).value;
      if (value) at.push_back(*value * unit);
    }
    const int64_t step = c.world() > 1 ? at[1] - at[0] : 0;
    bool affine = true;
    for (size_t r = 0; r < at.size(); ++r)
      affine = affine && at[r] == at[0] + static_cast<int64_t>(r) * step;
    if (affine) return {at[0], step, 0};
    const auto [lo, hi] = std::minmax_element(at.begin(), at.end());
    return {*lo, 0, *hi - *lo};
  }
  const ir::Interval range = c.range(offset);
  return {range.lo * unit, 0, (range.hi - range.lo) * unit};
}

ir::Region strided_region(const Mat& m, const Box& b, const std::array<int64_t, 4>& strides,
                          Offset offset, int64_t world) {
  std::vector<int64_t> pitches = {m.cols};
  for (int64_t s : strides)
    if (s > 1) pitches.push_back(s);
  std::optional<ir::Region> best;
  for (int64_t pitch : pitches) {
    const auto r = matrix_of(m, b, strides, offset, pitch);
    if (r && (!best || area(*r) < area(*best))) best = r;
  }
  if (best && area(*best) == b.count()) return *best;
  int64_t first = offset.base, last = offset.base + offset.spread;
  for (size_t i = 0; i < 4; ++i) {
    first += b.lo[i] * strides[i];
    last += (b.hi[i] - 1) * strides[i];
  }
  ir::Region run = run_of(m, first, last + 1);
  if (offset.rank_step != 0) {
    if (run.pitch == m.cols && offset.rank_step % m.cols == 0 &&
        (!best || area(run) < area(*best))) {
      run.block = {.rows = offset.rank_step / m.cols};
      return run;
    }
    if (best) return *best;
    // No pitch divides the step: take the hull over all ranks.
    const int64_t reach = offset.rank_step * (world - 1);
    return strided_region(
        m, b, strides,
        {offset.base + std::min<int64_t>(reach, 0), 0, offset.spread + std::abs(reach)}, world);
  }
  return best && area(*best) <= area(run) ? *best : run;
}

}  // namespace maco::ops
