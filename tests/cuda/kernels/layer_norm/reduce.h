#pragma once
// Sums over a block.

#include "detail/macros.h"

#include <stddef.h>

namespace own {

struct Moments {
  float sum;
  float squares;

  DEVICE_INLINE Moments& operator+=(const Moments& m) {
    sum += m.sum;
    squares += m.squares;
    return *this;
  }
};

DEVICE_INLINE Moments shuffled_down(const Moments& m, unsigned offset) {
  return Moments{__shfl_down_sync(FULL_MASK, m.sum, offset),
                 __shfl_down_sync(FULL_MASK, m.squares, offset)};
}

/// The sum over the block, in every thread. `scratch` has an entry a warp; it may be used again
/// after the next barrier.
template <class T>
DEVICE_INLINE T block_sum(T value, T* scratch) {
  for (unsigned offset = WARP / 2; offset != 0; offset >>= 1) value += shuffled_down(value, offset);
  const unsigned warps = CEIL_DIV(blockDim.x, WARP);
  if (LANE == 0) scratch[WARP_OF_BLOCK] = value;
  __syncthreads();
  T total = scratch[0];
  for (unsigned w = 1; w < warps; ++w) total += scratch[w];
  return total;
}

}  // namespace own
