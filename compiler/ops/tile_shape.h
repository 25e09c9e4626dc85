// How large the tiles of ops are that only stream through memory.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/tile.h"
#include "ir/dtype.h"
#include "ir/graph.h"

namespace maco::ops {

/// Elements a tile should have for `total` elements on `sms` SMs: one tile an SM where that makes
/// tiles of 2K to 16K elements, fewer where tiles would be smaller, more (but not above four an SM)
/// where they would be larger.
int64_t tile_elements(int64_t total, int32_t sms);

struct TileShape {
  int64_t bm = 1,
          bn = 1;  // bn: the whole width, or a multiple of 8; bm: all rows, or a multiple of 8
};
/// Blocks of about `elements` elements. At most 64 rows high while that leaves them 64 columns
/// wide: few rows at launch (dims) then still make many tiles, and a block meets few tiles of the
/// matmul that made it.
TileShape tile_matrix(int64_t rows, int64_t cols, int64_t elements);

/// The cut of an op whose tasks are such blocks of its result.
inline const std::vector<std::string> kBlockAxes = {"rows", "columns"};
TileShape choose_block_of(const TileContext& context, const Mat& out);
Cut choose_block(const TileContext& context);
std::string refuse_block(const TileContext& context, const Cut& cut);
TileShape block_of(const Cut& cut);

/// How many elements of the widest vectors (at most 8, at most 16 bytes of the smallest of `types`)
/// every multiple of `extents` allows: a power of two dividing all of them.
int64_t vector_width(const std::vector<ir::DType>& types, const std::vector<int64_t>& multiples);

}  // namespace maco::ops
