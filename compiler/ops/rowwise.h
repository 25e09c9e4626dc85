// What the tile rules of ops over rows share: a task has a block of whole rows.
#pragma once

#include <cstdint>

#include "compiler/ops/tile.h"

namespace maco::ops {

/// A tensor as rows over its last axis. Unlike Mat, one axis is one row even if its extent depends
/// on dims.
struct RowView {
  Mat mat;
  ir::Expr rows, cols;  // at launch
  int64_t max_rows = 1, max_cols = 1;
  /// Rows [r0, r1), clipped.
  ir::Region block(int64_t r0, int64_t r1) const;
};
RowView row_view(const TileContext& context, ir::TensorId tensor);

/// What a cut of such an op lists, and how many rows a task takes: one task for each SM if it then
/// has 2K to 64K elements, else as many rows as give that.
inline const std::vector<std::string> kRowAxes = {"rows"};
Cut choose_rows(const TileContext& context);

/// Elements [begin, end) of a tensor with one element for each row of another.
ir::Region one_per_row(const Mat& m, int64_t begin, int64_t end);

/// The product of all extents but the last; 1 for one axis.
ir::Expr leading(const ir::Shape& shape);

/// Reports and returns false unless input i is of a float type.
bool expect_float(InferContext& context, int i);
/// Reports and returns false unless the last axis of input i has a constant extent.
bool expect_constant_row(InferContext& context, int i);

}  // namespace maco::ops
