// What the choice of tiles needs to know of the device function matmul.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/cost/model.h"
#include "compiler/functions/function.h"

namespace maco::functions {

/// The most rows of a matmul whose tasks each norm them for themselves (stage "norm").
inline constexpr int64_t kMostNormedRows = 16;
/// The columns at which stage "append" begins and ends are multiples of this. So a run that a
/// thread stores lies in one place, in whole vectors (MatmulStore in ops/matmul_tensor.cuh).
constexpr int64_t matmul_appended_vector(ir::DType y) {
  return std::max<int64_t>(8, 16 / ir::size_of(y));
}
/// How a tile is multiplied (matmul_method.h).
struct MatmulMethod;

/// A matmul as methods and the choice of tiles see it.
struct MatmulShape {
  int64_t max_rows = 1, min_rows = 1, typical_rows = 1;  // of the task's op
  /// The least and the most rows of the op as the user wrote it: they decide how K is summed.
  ir::Interval plan_rows{1, 1};
  int64_t N = 1, K = 1;
  ir::DType a = ir::DType::BF16, b = ir::DType::BF16;
  ir::DType y = ir::DType::BF16;  // the type to which sums are rounded first (matmul_sum_dtype)
  bool transpose_b = false;
  // What stages ask of tiles (compiler/ops/matmul_stage.h):
  int64_t sums = 1;       // of each element of the result
  int64_t heads = 0;      // columns of a head that no warp may divide; 0: there are none
  bool tall = false;      // at least 64 rows, with all of K
  bool whole = false;     // all of K
  bool sent = false;      // its tiles, or mates' halves of them, go to peers
  bool all_there = true;  // memory has the most rows of a in every launch, whatever dims say
};

struct MatmulTiles {
  int64_t BM = 1, BN = 1;
  int64_t BK = 0;  // elements of K; 0: all
  friend bool operator==(const MatmulTiles&, const MatmulTiles&) = default;
};
/// The number of parts of K. The tiles of each part make sums of their own, which are added up.
inline int64_t matmul_parts(int64_t K, MatmulTiles tiles) {
  return tiles.BK == 0 ? 1 : (K + tiles.BK - 1) / tiles.BK;
}
inline constexpr int64_t kMostMatmulParts = 8;

/// The most rows that Dot takes for such operands.
int64_t matmul_few_rows(ir::DType a, ir::DType b, int64_t K, bool transpose_b,
                        const cost::Machine& machine);
inline constexpr int64_t kMostFewRows = 32;

// How b comes through pages. A page holds a slice of b: some columns over a run of K.

/// Columns of a slice of Dot where b isn't transposed. The slice decides how many lanes split K, so
/// it depends on N alone.
int64_t matmul_slice(int64_t N);
/// The columns of a Dot tile are a multiple of this.
int64_t matmul_column_step(int64_t N, bool transpose_b);
/// Whether a page can hold a slice of BN columns over the shortest run of K that Block takes.
bool matmul_fits(int64_t BN, int64_t b_bytes, bool transpose_b, int64_t page_bytes);

/// On tensor cores an operand's tile comes in blocks of K. This is how many elements a block has,
/// of `bytes` each.
constexpr int64_t matmul_block(int64_t bytes) { return ir::Load::kLine / bytes; }
/// How many pages hold a block of `rows` rows of an operand (runtime/device/tensor_cores.cuh); 0 if
/// no number of pages can.
int64_t matmul_block_pages(int64_t rows, int64_t page_bytes);
/// The most pages of an operand that a task on tensor cores holds at a time. The pages of the
/// operand with more blocks in a page stay, while the other's are replaced. `rows` and `other`: the
/// tile's size along this operand and along the other; `blocks`: blocks of K. 0 if blocks don't fit
/// such pages.
int64_t matmul_held_pages(int64_t rows, int64_t other, int64_t blocks, int64_t page_bytes);

/// In how many pages half of a tile's sums come from a mate. 0: such tiles aren't halved. Either
/// they are small, and took twice as long as more parts of larger tiles, or a ring of `pages` pages
/// has no room.
int64_t matmul_halves_pages(int64_t BM, int64_t BN, int64_t page_bytes, int64_t pages);

struct MatmulLoads {
  const MatmulMethod* method = nullptr;  // set
  int64_t N = 1, K = 1, BM = 1, BN = 1;
  int64_t BK = 0;  // how much of K a tile covers; 0: all
  bool transpose_b = false;
  bool fixed_rows = true;  // no dim decides how many there are
  bool all_there = true;   // memory has as many rows of a as there may be
  int64_t page_bytes = 0;
  // For few rows:
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
  int64_t few_rows = 8;              // from matmul_few_rows
  int64_t sums = 1;                  // of each element of the result
  bool lone = false;                 // the op has one row, whatever a launch's dims are
  bool boxes = false;                // slices of b come in boxes (matmul_few_box)
  bool in_line = false;              // or as they lie in memory (matmul_line_columns)
  bool mates = false;                // they have half of K each
  bool blocks = false;               // both operands come in boxes, without tensor cores
};
/// Whether both operands of a matmul of many rows without tensor cores may come in boxes, in blocks
/// as for tensor cores (runtime/device/thread_tile.cuh). Otherwise the loader brings b alone
/// (runtime/device/ops/matmul_block.cuh), as one warp's copies of both would take longer. The sums
/// are the same either way.
bool matmul_takes_blocks(const MatmulLoads& matmul, bool same_types, const cost::Machine& machine);
/// Makes the loader bring b alone for all matmuls of a Program, so that they hold fewer pages.
/// Returns whether any of them took blocks.
bool leave_blocks(ir::Program& program);
/// The box of a slice of b for Dot, of each matrix of a pair; nothing if no tensor map can describe
/// it.
std::optional<ir::Load::Box> matmul_few_box(const MatmulLoads& matmul);
/// Whole columns of b may come as they lie in memory, page after page ("in line"). This needs a
/// lone row, and K must be a power of two from 256 to 2,048, a multiple of 2,048, or a multiple of
/// 1,024 up to 7,168 (runtime/device/ops/matmul_line.cuh). Returns how many columns are a slice,
/// which fills whole pages; 0 if the matmul can't be in line.
int64_t matmul_line_columns(const MatmulLoads& matmul);
/// Whether the matmul can be in line and the ring has room for it; it is then faster than with
/// boxes (docs/notebook/decoding.md, "Weights in line"). The order of additions follows from the
/// answer. Where K is 2,048 or more, the order depends neither on tiles and roles nor on whether
/// the matmul is a pair.
bool matmul_better_in_line(const MatmulLoads& matmul, const cost::Machine& machine);
/// Scratch memory of a matmul in line, in bytes. It is for sums only where each thread fetches its
/// own part of the row into registers.
int64_t matmul_line_scratch(int64_t K, const cost::Machine& machine);
/// The most scratch memory that rows may take, so that a ring fits beside them.
int64_t matmul_most_scratch(const cost::Machine& machine);
/// How a (0), b (1) or a pair's other b (2) comes through pages; nothing if it doesn't.
std::optional<LoadRule> matmul_load(const MatmulLoads& matmul, size_t operand);
/// The same for methods without tensor cores: b comes in slices, or both operands in blocks; and
/// for methods on tensor cores, to which both come as tiles.
std::optional<LoadRule> matmul_load_slices(const MatmulLoads& matmul, size_t operand);
std::optional<LoadRule> matmul_load_tiles(const MatmulLoads& matmul, size_t operand);

/// A tile of a matmul of `rows` x K by K x N.
struct MatmulTile {
  const MatmulMethod* method = nullptr;  // set
  int64_t rows = 1, K = 1;               // K: how much of it the tile covers
  int64_t BM = 1, BN = 1;
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
  int64_t few_rows = 8;
  int64_t sums = 1;  // of each element of the result
};
cost::Work matmul_work(const MatmulTile& tile, const cost::Machine& machine);
/// Tiles of many rows read the same data, mostly from the GPU's cache. This share of what they read
/// counts as if it came from memory: on an H200 such matmuls read 7 TB/s
/// (docs/benchmarks/logs/products-parts-h200.txt).
inline constexpr double kFromCache = 0.67;
/// Tiles larger than 128 x 128 take longer by this factor, because few of their blocks fit in the
/// ring (1,750 clocks for 48 KB there, 1,000 for 32 KB of a smaller tile).
inline constexpr double kLargeTile = 1.15;

}  // namespace maco::functions
