// How a matmul is cut into tasks, as its tile rule and its stages see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/functions/matmul.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/tile.h"
#include "ir/body.h"

namespace maco::ops {

/// A matmul that is cut so.
struct MatmulTiling {
  Mat a, b, y;
  MatmulInputs inputs;
  ir::BodyParam epilogue;
  ir::Expr plan;
  Cut cut;
  MatmulTiles tiles;
  int64_t parts = 1;
  bool mates = false;  // tasks that have halves of K exchange sums; others add parts up
  int own = 2;         // inputs of a task
  functions::MatmulLoads loads;

  bool merged() const { return parts > 1 && !mates; }
  int64_t across() const { return tiles_of(y.cols, tiles.BN); }
  int64_t count() const { return tiles_of(a.max_rows, tiles.BM) * across(); }
  /// Calls f(r, n) with the first row and column of each tile of `rows` rows. Tiles that run at
  /// the same time share rows of a and columns of b, which then come from the GPU's cache. So tiles
  /// come in groups of several rows of tiles, column by column.
  template <class F>
  void each_tile(int64_t rows, F f) const {
    constexpr int64_t kRowsAtOnce = 16;
    const int64_t at_once = kRowsAtOnce * tiles.BM;
    for (int64_t first = 0; first < rows; first += at_once)
      for (int64_t n = 0; n < y.cols; n += tiles.BN)
        for (int64_t r = first; r < std::min(rows, first + at_once); r += tiles.BM) f(r, n);
  }
  int64_t tile_at(int64_t r, int64_t n) const { return r / tiles.BM * across() + n / tiles.BN; }
};
MatmulTiling tiling_of(TileContext& product);

MatmulTiles tiles_in(const Cut& cut);
/// SMs that compute matrix products.
int32_t compute_sms(const TileContext& product);
/// The parameters of a call whose sums go to a tensor of type `sum`, without those of stages.
std::vector<ir::Param> params_of(TileContext& product, const MatmulTiling& tiling, ir::DType sum);
/// How the operands come through pages: ahead of the task's waits if nobody writes them.
std::vector<ir::Load> loads_of(const TileContext& product, const functions::MatmulLoads& matmul);
/// What a task reads. Parts take blocks of K in turn.
std::vector<ir::Access> reads_of(const TileContext& product, const MatmulTiling& tiling,
                                 const MatmulPart& part);
/// Why a matmul with this cut can't have a block of rows for each rank, each of many tiles, or "".
std::string refuse_blocks(const TileContext& product, const Cut& cut);

/// A stage that follows from the op's neighbours or from its cut, in the op's tasks.
struct TaskStage {
  std::vector<ir::Param> params{};
  std::vector<ir::BufferId> results{};  // behind the sums
  std::vector<ir::Transfer> moves{};    // of each task
  /// The block of the rows of a task; its number as the function counts tiles. Null: as the tile
  /// rule has it.
  std::function<ir::Block(const ir::Call&, uint32_t tile)> block = nullptr;
  /// Changes what the task finishes, which has this part of K. Null: it finishes its tile.
  void (*finishes)(MatmulPart&, int64_t part) = nullptr;
  /// What a task writes to `results`. Null: nothing.
  std::function<ir::Access(uint32_t tile)> writes = nullptr;
  /// Adds what the task signals. Null: nothing.
  std::function<void(ir::TaskId, uint32_t tile)> signals = nullptr;
};

}  // namespace maco::ops
