// What ops need to know of the device functions for attention, to choose how they use them.
#pragma once

#include <cstdint>

#include "compiler/cost/model.h"
#include "compiler/functions/function.h"

namespace maco::functions {

/// Of runtime/device/ops/attention_step.cuh, which has the same number: rows of a task, and most
/// new rows.
inline constexpr int64_t kStepRows = 16;
/// Of runtime/device/ops/attention_tile.cuh: most rows of a task, those of its heads together.
inline constexpr int64_t kTileRows = 128;
/// Of runtime/device/ops/attention.cuh: keys of a block.
inline constexpr int64_t kBlockKeys = 32;
/// Rows, counted for the heads that share keys, of a typical launch, from which on attention_tile
/// pays.
inline constexpr int64_t kManyRows = 64;
/// The longest head of attention_step and attention_tile.
inline constexpr int64_t kMostHeadDim = 256;
/// Most rows of a task of attention_step, so that registers hold what it has of longer heads, too.
constexpr int64_t step_rows(int64_t head_dim) { return head_dim > 128 ? kStepRows / 2 : kStepRows; }

/// A task of attention_step.
struct AttentionStep {
  int64_t head_dim = 1;
  // In the cache before an ordinary launch, those that it sees: it adds its own, which need no
  // pages.
  int64_t keys = 1;
  int64_t splits = 1;
  int64_t element_bytes = 2;
  int64_t page_keys = 1;  // step_keys
};
/// A window as device functions take it: 0 if it hides none of so many keys.
constexpr int64_t window_over(int64_t keys, int64_t window) { return window < keys ? window : 0; }
/// Of so many keys in the cache those that some new row sees. `window`: 0 if there is none.
constexpr int64_t keys_in_window(int64_t keys, int64_t window) {
  return window > 0 && keys > window - 1 ? window - 1 : keys;
}
cost::Work step_work(const AttentionStep& step, const cost::Machine& machine);

/// Keys and values of a head as they come through pages (ops/attention_pages.cuh): how many are in
/// a block of attention_step and of attention_tile, and their box, of heads of whole chunks.
/// `width`: columns of the operand.
int64_t step_keys(int64_t page_bytes);
int64_t tile_keys(int64_t head_dim, int64_t page_bytes);
ir::Load::Box step_box(int64_t head_dim, int64_t width, int64_t page_bytes);
ir::Load::Box tile_box(int64_t head_dim, int64_t width, int64_t page_bytes);
/// Does attention_tile take such heads: of whole chunks, keys of which fill a page in whole steps?
bool takes_head(int64_t head_dim, int64_t page_bytes);

/// Scratch memory of attention_tile in bytes: a line of each row or, for groups of four warps, all
/// of its query.
int64_t tile_scratch(int64_t head_dim, bool wgmma);
/// The same of attention_step.
int64_t step_scratch(int64_t head_dim);

}  // namespace maco::functions
