#include "compiler/ops/tile_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace maco::ops {

namespace {
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
}  // namespace

int64_t tile_elements(int64_t total, int32_t sms) {
  const int64_t one_each = std::clamp<int64_t>(ceil_div(total, sms), 2048, 16384);
  return std::max(one_each, ceil_div(total, int64_t{4} * sms));
}

TileShape tile_matrix(int64_t rows, int64_t cols, int64_t elements) {
  TileShape t;
  t.bm = std::min<int64_t>(rows, 64);
  t.bn = round_up(std::max<int64_t>(elements / t.bm, 1), 64);
  if (t.bn < cols) {
    // Blocks of equal width rather than a narrow last one.
    t.bn = round_up(ceil_div(cols, ceil_div(cols, t.bn)), 64);
    return t;
  }
  t.bn = cols;
  t.bm = std::min(rows, round_up(ceil_div(elements, cols), 8));
  return t;
}

TileShape choose_block_of(const TileContext& c, const Mat& out) {
  return tile_matrix(out.max_rows, out.cols, tile_elements(out.max_elements(), c.machine().sms));
}
Cut choose_block(const TileContext& c) {
  const TileShape t = choose_block_of(c, c.out(0));
  return {.tile = {t.bm, t.bn}};
}
std::string refuse_block(const TileContext& c, const Cut& cut) {
  const int64_t cols = c.out(0).cols;
  if (cut.tile[1] == cols || (cut.tile[1] < cols && cut.tile[1] % 8 == 0)) return "";
  return fmt::format("a tile has all {} columns or a multiple of 8 of them, not {}", cols,
                     cut.tile[1]);
}
TileShape block_of(const Cut& cut) { return {cut.tile[0], cut.tile[1]}; }

int64_t vector_width(const std::vector<ir::DType>& types, const std::vector<int64_t>& multiples) {
  int64_t smallest = 4;
  for (ir::DType t : types) smallest = std::min(smallest, ir::size_of(t));
  int64_t width = std::min<int64_t>(8, 16 / smallest);
  for (int64_t m : multiples)
    while (m % width != 0) width /= 2;
  return width;
}

}  // namespace maco::ops
