// Tile sizes for ops that only stream through memory.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/tile.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace maco::ops {

/// How many elements a tile should have for `total` elements on `sms` SMs. One tile for each SM if
/// tiles then have 2K to 16K elements; fewer tiles if they would be smaller; more (at most four for
/// each SM) if they would be larger.
int64_t tile_elements(int64_t total, int32_t sms);

struct TileShape {
  int64_t bm = 1,
          bn = 1;  // bn: the whole width, or a multiple of 8; bm: all rows, or a multiple of 8
};
/// Blocks of about `elements` elements. They are at most 64 rows high if that leaves them 64
/// columns wide. So a launch with few rows (dims) still has many tiles, and a block meets few tiles
/// of the matmul that made it.
TileShape tile_matrix(int64_t rows, int64_t cols, int64_t elements);

/// The cut of an op whose tasks are such blocks of its result.
inline const std::vector<std::string> kBlockAxes = {"rows", "columns"};
TileShape choose_block_of(const TileContext& context, const Mat& out);
Cut choose_block(const TileContext& context);
std::string refuse_block(const TileContext& context, const Cut& cut);
TileShape block_of(const Cut& cut);

/// How many elements the widest usable vectors have: a power of two that divides all `multiples`,
/// at most 8, and at most 16 bytes of the smallest of `types`.
int64_t vector_width(const std::vector<ir::DType>& types, const std::vector<int64_t>& multiples);

}  // namespace maco::ops
