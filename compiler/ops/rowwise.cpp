#include "compiler/ops/rowwise.h"

#include <fmt/format.h>

#include <algorithm>

namespace maco::ops {

ir::Region RowView::block(int64_t r0, int64_t r1) const {
  if (mat.max_rows != max_rows) return whole(mat);
  return box(mat, r0, r1, 0, mat.cols);
}

RowView row_view(const TileContext& context, ir::TensorId tensor) {
  RowView v;
  v.mat = context.mat(tensor);
  const ir::Shape& shape = context.shape(tensor);
  if (shape.size() == 1) {
    v.rows = ir::Expr(1);
    v.cols = shape[0];
    v.max_cols = v.mat.max_elements();
  } else {
    v.rows = v.mat.rows;
    v.max_rows = v.mat.max_rows;
    v.cols = ir::Expr(v.mat.cols);
    v.max_cols = v.mat.cols;
  }
  return v;
}

Cut choose_rows(const TileContext& c) {
  const RowView x = row_view(c, c.op().in[0]);
  constexpr int64_t least = 2048, most = 65536;
  const int64_t one_each = (x.max_rows + c.machine().sms - 1) / c.machine().sms;
  const int64_t low = (least + x.max_cols - 1) / x.max_cols,
                high = std::max(low, most / x.max_cols);
  return {.tile = {std::min(x.max_rows, std::clamp(one_each, low, high))}};
}

ir::Region one_per_row(const Mat& m, int64_t begin, int64_t end) {
  return m.cols == 1 ? box(m, begin, end, 0, 1) : flat(m, begin, end);
}

ir::Expr leading(const ir::Shape& shape) {
  ir::Expr product(1);
  for (size_t a = 0; a + 1 < shape.size(); ++a) product = product * shape[a];
  return ir::canonical(product);
}

bool expect_float(InferContext& context, int i) {
  const ir::DType t = context.in(i).dtype;
  if (ir::is_float(t)) return true;
  context.error_in(
      i, fmt::format("'{}' takes floats, but '{}' is {}", context.op().kind,
                     context.graph()[context.op().in[static_cast<size_t>(i)]].name, ir::name(t)));
  context.note_in(i);
  return false;
}

bool expect_constant_row(InferContext& context, int i) {
  if (context.extent(i, -1).is_constant()) return true;
  context.error_in(
      i, fmt::format("'{}' needs a last axis of constant extent, but has {}", context.op().kind,
                     describe(context.graph(), context.op().in[static_cast<size_t>(i)])));
  context.note_in(i);
  return false;
}

}  // namespace maco::ops
