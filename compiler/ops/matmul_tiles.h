// Into which tiles a matrix product is cut.
#pragma once

#include <cstdint>

#include "compiler/cost/machine.h"

namespace maco::ops {

struct MatmulShape {
  int64_t max_rows = 1, min_rows = 1;  // of the task's op
  // the most rows of the op as the user wrote it: decides how K is summed
  int64_t plan_rows = 1;
  int64_t N = 1, K = 1;
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
  bool transpose_b = false;
};

struct MatmulTiles {
  int64_t BM = 1, BN = 1;
};
/// The tiles with the least estimated time on `sms` SMs. None that the device function does not
/// take: with few rows BM is a power of two up to 8 and BN a multiple of 8, else both are multiples
/// of 16, and a slice of b fits in a page.
MatmulTiles choose_matmul_tiles(const MatmulShape& shape, const cost::Machine& machine,
                                int32_t sms);

}  // namespace maco::ops
