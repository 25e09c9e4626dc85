// What the choice of tiles needs to know of the device function matmul.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/cost/model.h"

namespace maco::functions {

/// How a tile is multiplied (runtime/device/ops/matmul.cuh, which has the same words).
enum class MatmulMethod : uint8_t {
  Dot,     // up to 8 rows: threads split K and add up at the end
  Block,   // each thread has a block of the result and runs through K in order
  ByRows,  // Dot or Block, as many rows as the launch has
};
inline constexpr size_t kMatmulMethods = 3;
std::string_view name(MatmulMethod method);

/// The most rows that Dot takes.
inline constexpr int64_t kDotRows = 8;

// How b comes through pages. A page has a slice of it: some columns over a run of K.

/// Columns of a slice of Dot where b isn't transposed: how many lanes split K depends on it, so it
/// depends on N alone.
int64_t matmul_slice(int64_t N);
/// What the columns of a tile of Dot are a multiple of.
int64_t matmul_column_step(int64_t N, bool transpose_b);
/// Does a slice of BN columns and the least run of K that Block takes fit in a page?
bool matmul_fits(int64_t BN, int64_t b_bytes, bool transpose_b, int64_t page_bytes);

/// A tile of a product of `rows` x K by K x N.
struct MatmulTile {
  MatmulMethod method = MatmulMethod::Block;
  int64_t rows = 1, K = 1;
  int64_t BM = 1, BN = 1;
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
};
cost::Work matmul_work(const MatmulTile& tile, const cost::Machine& machine);

}  // namespace maco::functions
