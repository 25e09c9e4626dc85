#include <algorithm>

#include "compiler/ops/collectives.h"

namespace maco::ops {

Mat by_blocks(const TileContext& context, ir::TensorId tensor, int64_t blocks) {
  Mat m = context.mat(tensor);
  if (context.shape(tensor).size() == 1 && !m.dynamic()) {
    m.rows = ir::Expr(blocks);
    m.min_rows = m.max_rows = blocks;
    m.cols /= blocks;
  }
  return m;
}

Boxes cut(const TileContext& context, const Mat& m, const ir::Expr& rows, int64_t blocks) {
  Boxes b;
  b.rows = ir::canonical(rows);
  const ir::Interval range = context.range(b.rows);
  b.min_rows = range.lo;
  b.max_rows = range.hi;
  b.cols = m.cols;
  // Enough tiles to keep the communication SMs busy, none so small that its flags weigh more than
  // its data.
  const int64_t elements = b.max_rows * b.cols * blocks;
  const int64_t least = context.machine().arch == 0 ? 96 : 2048;
  const int64_t most = context.machine().arch == 0 ? 4096 : 32768;
  const int64_t target = std::clamp(
      elements / (4 * std::max<int64_t>(1, context.machine().default_comm)), least, most);
  b.BC = std::min<int64_t>(b.cols, target >= 512 ? 512 : 64);
  b.BR = std::clamp<int64_t>(target / b.BC, 1, b.max_rows);
  b.across = (b.cols + b.BC - 1) / b.BC;
  b.down = (b.max_rows + b.BR - 1) / b.BR;
  b.stride = (b.BR * b.BC + 15) / 16 * 16;
  return b;
}

bool moves(const Boxes& boxes) { return boxes.min_rows != boxes.max_rows; }

ir::Region box_of(const Mat& m, const Boxes& boxes, int64_t t, int64_t block) {
  const int64_t r0 = t / boxes.across * boxes.BR, c0 = t % boxes.across * boxes.BC;
  const int64_t r1 = std::min(r0 + boxes.BR, boxes.max_rows);
  return box(m, block * boxes.min_rows + r0, block * boxes.max_rows + r1, c0, c0 + boxes.BC);
}

ir::Region own_box_of(const TileContext& context, const Mat& m, const Boxes& boxes, int64_t t) {
  ir::Region r = box_of(m, boxes, t);
  if (boxes.min_rows == boxes.max_rows) {
    r.block = {.rows = boxes.max_rows};
    return r;
  }
  r.r1 = (context.world() - 1) * boxes.max_rows + r.r1;
  r.r1 = std::min(r.r1, m.max_rows);
  return r;
}

}  // namespace maco::ops
