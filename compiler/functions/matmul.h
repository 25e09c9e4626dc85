// What the choice of tiles needs to know of the device function matmul.
#pragma once

#include <cstdint>

#include "compiler/cost/model.h"

namespace maco::functions {

/// Up to this many rows, lanes split K (runtime/device/ops/matmul.cuh).
inline constexpr int64_t kFewRows = 8;

/// A tile of a product of `rows` x K by K x N.
struct MatmulTile {
  int64_t rows = 1, K = 1;
  int64_t BM = 1, BN = 1;
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
};
cost::Work matmul_work(const MatmulTile& tile, const cost::Machine& machine);

}  // namespace maco::functions
