// The region of a tensor that a box of a strided copy touches.
#pragma once

#include <array>
#include <cstdint>

#include "compiler/ops/tile.h"

namespace maco::ops {

/// Coordinates [lo, hi) of the copy's four axes.
struct Box {
  std::array<int64_t, 4> lo, hi;
  int64_t count() const;
};

/// Elements added to every address: base + rank * rank_step + a number in [0, spread].
struct Offset {
  int64_t base = 0, rank_step = 0, spread = 0;
};
/// `offset` * `unit` elements; `offset` is an expression over dims, scalars and rank.
Offset resolve_offset(const TileContext& context, const ir::Expr& offset, int64_t unit);

/// A region with every element that the box reaches. It has no other element if they form a matrix
/// of some pitch, as for any box of a dense tensor that is cut along one axis, or along two
/// neighbouring ones.
ir::Region strided_region(const Mat& m, const Box& box, const std::array<int64_t, 4>& strides,
                          Offset offset, int64_t world);

}  // namespace maco::ops
