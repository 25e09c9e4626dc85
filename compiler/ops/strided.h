// Tiles and regions of ops that move a box of elements from one place to another: reshape,
// transpose, slice, the pieces of concat and split, kv_append. All are the device function
// strided_copy<C>.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/tile.h"

namespace maco::ops {

struct StridedAxis {
  ir::Expr extent;        // only the outermost may depend on dims
  int64_t in_stride = 0;  // elements
  int64_t out_stride = 0;
};

/// Element (i0, i1, ...) goes from in[in_offset * in_unit + sum of i * in_stride] to the same place
/// of out, with out_offset and so on. Offsets are expressions over dims, scalars and rank. Where
/// these decide, regions are the hull of what they allow, or rows that count from there
/// (ir::Region::from).
struct StridedCopy {
  Mat in, out;
  std::vector<StridedAxis> axes;  // 1 to 4, outermost first
  ir::Expr in_offset{0}, out_offset{0};
  int64_t in_unit = 0, out_unit = 0;
  /// How much of the last axis `in` has, if less than the extent: behind it `out` gets zeros. 0:
  /// all.
  int64_t given = 0;
  /// Whether, for some values of the dims, the copy doesn't reach all elements of `out` inside its
  /// regions: these are then MayWrite.
  bool partial = false;
};

/// Row-major strides of a shape (extents behind axis 0 are constants).
std::vector<int64_t> row_major(const ir::Shape& shape);

/// What a cut of such an op lists: about how many elements a task has.
inline const std::vector<std::string> kStridedAxes = {"elements"};
/// The cut of an op that moves its operands to its results.
Cut choose_strided(const TileContext& context);
/// The cut of a copy of `total` elements.
Cut choose_strided(const TileContext& context, int64_t total);

/// Makes the call and its tasks.
void tile_strided_copy(TileContext& context, const StridedCopy& copy);

}  // namespace maco::ops
