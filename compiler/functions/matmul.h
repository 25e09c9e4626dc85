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

/// What a product does besides: `paired`, a is multiplied with two matrices, and an element's
/// epilogue gets both sums (Dot, Mma, Wgmma); `normed`, its rows are normed first, as rmsnorm does
/// (Dot, of up to kMostNormedRows: every tile norms them for itself); `pushed`, its tiles go to
/// peers' slots as well (Mma, Wgmma; functions/exchange.h, push_of); `added`, of those one that
/// adds what others have sent of the tile before it stores and sends it; `turned`, heads of its
/// result turn as by rope (Mma, Wgmma, tiles of 64 rows or more and of whole heads); `appended`,
/// its last columns become rows of one cache or two (Mma, Wgmma, tiles of 64 rows or more);
/// `halved`, tasks come as mates: both have the same tile, of half of K each, and finish half of
/// its columns each (Wgmma; matmul_halves_pages); `gathered`, its rows are a block of each rank, of
/// which it begins with this rank's (Mma, Wgmma, rows that are always there).
struct MatmulForm {
  bool paired = false, normed = false, pushed = false, turned = false, appended = false,
       halved = false, added = false, gathered = false;
};
inline constexpr int64_t kMostNormedRows = 16;
/// What the columns that `appended` begins and ends with are multiples of: a run that a thread
/// stores lies in one place, in whole vectors (MatmulStore in ops/matmul_tensor.cuh).
constexpr int64_t matmul_appended_vector(ir::DType y) {
  return std::max<int64_t>(8, 16 / ir::size_of(y));
}
/// The device function of this form, which has its operands: a, b, (the other b), (the norm's
/// weights, or the sines and cosines of a row's pairs, f32), y, (slots, or the cache of the first
/// columns that are appended and that of the others), (what others have sent, and the tensor of
/// what is added to it), then those of the body.
std::string matmul_function(MatmulForm form);
/// The form of a device function of that name; nothing if it is no product.
std::optional<MatmulForm> matmul_form_of(std::string_view function);

/// How a tile is multiplied (runtime/device/ops/matmul.cuh, which has the same words).
enum class MatmulMethod : uint8_t {
  Dot,        // few rows: threads split K and add up at the end
  Block,      // each thread has a block of the result and runs through K in order
  Mma,        // tensor cores, a warp at a time: 16-bit floats
  Wgmma,      // tensor cores, four warps at a time, on boxes
  ByRows,     // Dot or Block, as many rows as the launch has
  ByRowsMma,  // Dot or Mma
};
inline constexpr size_t kMatmulMethods = 6;
std::string_view name(MatmulMethod method);
/// May a launch take Dot? What does one of many rows take?
bool takes_dot(MatmulMethod method);
MatmulMethod for_many_rows(MatmulMethod method);
/// Is that done by tensor cores?
bool on_tensor_cores(MatmulMethod method);

/// The most rows that Dot takes of such operands.
int64_t matmul_few_rows(ir::DType a, ir::DType b, int64_t K, bool transpose_b,
                        const cost::Machine& machine);
inline constexpr int64_t kMostFewRows = 32;

// How b comes through pages. A page has a slice of it: some columns over a run of K.

/// Columns of a slice of Dot where b isn't transposed: how many lanes split K depends on it, so it
/// depends on N alone.
int64_t matmul_slice(int64_t N);
/// What the columns of a tile of Dot are a multiple of.
int64_t matmul_column_step(int64_t N, bool transpose_b);
/// Does a slice of BN columns and the least run of K that Block takes fit in a page?
bool matmul_fits(int64_t BN, int64_t b_bytes, bool transpose_b, int64_t page_bytes);

/// Of a block of K, which an operand's tile on tensor cores comes in: so many elements, of `bytes`
/// each.
constexpr int64_t matmul_block(int64_t bytes) { return ir::Load::kLine / bytes; }
/// Pages that hold a block of `rows` rows of an operand (runtime/device/tensor_cores.cuh); 0: none
/// can.
int64_t matmul_block_pages(int64_t rows, int64_t page_bytes);
/// Pages of an operand that a task on tensor cores has at a time, at most: of the one with more
/// blocks in a page those stay while the other's go by. `rows`, `other`: of the tile, of this
/// operand and of the other; `blocks`: of its K; 0 if blocks don't lie in such pages.
int64_t matmul_held_pages(int64_t rows, int64_t other, int64_t blocks, int64_t page_bytes);

/// Pages in which half of the sums of a tile come from a mate; 0: such tiles aren't halved, since
/// small ones took twice as long as more parts of larger ones, or for want of room in a ring of so
/// many pages.
int64_t matmul_halves_pages(int64_t BM, int64_t BN, int64_t page_bytes, int64_t pages);

struct MatmulLoads {
  MatmulMethod method = MatmulMethod::Block;
  int64_t N = 1, K = 1, BM = 1, BN = 1;
  int64_t BK = 0;  // what a tile has of K; 0: all
  bool transpose_b = false;
  bool fixed_rows = true;  // no dim decides how many there are
  bool all_there = true;   // memory has as many rows of a as there may be
  int64_t page_bytes = 0;
  // Of Dot:
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
  int64_t few_rows = 8;              // matmul_few_rows
  bool paired = false;
  bool lone = false;     // the op has one row, whatever a launch's dims are
  bool boxes = false;    // slices of b come in boxes (matmul_few_box)
  bool in_line = false;  // or as they lie in memory (matmul_line_columns)
  bool halved = false;   // of MatmulForm
  bool blocks = false;   // of Block: both operands come in boxes (matmul_takes_blocks)
};
/// May both operands of a product of many rows by ordinary arithmetic come in boxes, in blocks as
/// those of tensor cores do (runtime/device/thread_tile.cuh)? Else the loader brings b alone
/// (runtime/device/ops/matmul_block.cuh): one warp's copies of both would take longer. Sums are the
/// same either way.
bool matmul_takes_blocks(const MatmulLoads& matmul, bool same_types, const cost::Machine& machine);
/// Has the loader bring b alone again for all products of a Program, which holds fewer pages. Was
/// there one that took blocks?
bool leave_blocks(ir::Program& program);
/// The box that a slice of b is for Dot, of each matrix of a pair; none if no map describes it.
std::optional<ir::Load::Box> matmul_few_box(const MatmulLoads& matmul);
/// Whole columns of b may come as they lie in memory, page after page: those of a lone row, whose K
/// is a power of two from 256 to 2,048, a multiple of 2,048, or one of 1,024 up to 7,168
/// (runtime/device/ops/matmul_line.cuh).
/// How many are a slice, which is whole pages; 0: that way doesn't suit.
int64_t matmul_line_columns(const MatmulLoads& matmul);
/// Does that suit, and has the ring room? Then it is quicker than boxes
/// (docs/notebook/decoding.md, "Weights in line"). The order of sums follows from it where K is
/// 2,048 or more: then neither tiles and roles matter nor what is a pair.
bool matmul_better_in_line(const MatmulLoads& matmul, const cost::Machine& machine);
/// What such a product needs of the scratch memory: where each thread fetches its own part of the
/// row, and that is in registers, for sums only.
int64_t matmul_line_scratch(int64_t K, const cost::Machine& machine);
/// What rows may take of it, so that a ring fits beside them.
int64_t matmul_most_scratch(const cost::Machine& machine);
/// How a (0), b (1) or the other b of a pair (2) comes through pages; nothing if it doesn't.
std::optional<LoadRule> matmul_load(const MatmulLoads& matmul, size_t operand);

/// A tile of a product of `rows` x K by K x N.
struct MatmulTile {
  MatmulMethod method = MatmulMethod::Block;
  int64_t rows = 1, K = 1;  // K: what the tile has of it
  int64_t BM = 1, BN = 1;
  int64_t a_bytes = 2, b_bytes = 2;  // of an element
  int64_t few_rows = 8;
  bool paired = false;
};
cost::Work matmul_work(const MatmulTile& tile, const cost::Machine& machine);
/// Of what tiles of many rows read, which meet in a GPU's cache, so much counts as if it came from
/// memory: on an H200 such products read 7 TB/s (docs/benchmarks/logs/products-parts-h200.txt).
inline constexpr double kFromCache = 0.67;
/// So much longer tiles of more than 128 x 128 take, of which few blocks fit in the ring (1,750
/// clocks for 48 KB there, 1,000 for 32 KB of a smaller tile).
inline constexpr double kLargeTile = 1.15;

}  // namespace maco::functions
