// What ops need to know of the device functions for attention to choose among them.
#pragma once

#include <cstdint>

#include "compiler/cost/model.h"
#include "compiler/functions/function.h"

namespace maco::functions {

/// The most rows of a task of attention_step, and the most new rows.
/// runtime/device/ops/attention_step_shape.cuh has the same number.
inline constexpr int64_t kStepRows = 16;
/// The most rows of a task of attention_tile, counted over its heads.
/// runtime/device/ops/attention_tile_shape.cuh has the same number.
inline constexpr int64_t kTileRows = 128;
/// Keys in a block of attention. runtime/device/ops/attention.cuh has the same number.
inline constexpr int64_t kBlockKeys = 32;
/// The number of rows of a typical launch, times the heads that share keys, from which
/// attention_tile is faster.
inline constexpr int64_t kManyRows = 64;
/// The longest head of attention_step and attention_tile.
inline constexpr int64_t kMostHeadDim = 256;
/// The most rows of a task of attention_step. Longer heads have fewer, so that their values fit in
/// registers.
constexpr int64_t step_rows(int64_t head_dim) { return head_dim > 128 ? kStepRows / 2 : kStepRows; }

/// A task of attention_step.
struct AttentionStep {
  int64_t head_dim = 1;
  // How many keys of the cache the step sees before an ordinary launch. It adds its own keys, which
  // need no pages.
  int64_t keys = 1;
  int64_t splits = 1;
  int64_t element_bytes = 2;
  int64_t page_keys = 1;  // step_keys
};
/// A window as device functions take it: 0 if it hides none of `keys` keys.
constexpr int64_t window_over(int64_t keys, int64_t window) { return window < keys ? window : 0; }
/// How many of `keys` keys in the cache some new row sees. `window`: 0 if there is none.
constexpr int64_t keys_in_window(int64_t keys, int64_t window) {
  return window > 0 && keys > window - 1 ? window - 1 : keys;
}
cost::Work step_work(const AttentionStep& step, const cost::Machine& machine);

/// How keys and values of a head come through pages (ops/attention_pages.cuh): how many keys a
/// block of attention_step and of attention_tile has, and the box, for heads that are whole chunks.
/// `width`: columns of the operand.
int64_t step_keys(int64_t page_bytes);
int64_t tile_keys(int64_t head_dim, int64_t page_bytes);
ir::Load::Box step_box(int64_t head_dim, int64_t width, int64_t page_bytes);
ir::Load::Box tile_box(int64_t head_dim, int64_t width, int64_t page_bytes);
/// Whether attention_tile takes heads of `head_dim`: they must be whole chunks, and their keys must
/// fill a page in whole steps.
bool takes_head(int64_t head_dim, int64_t page_bytes);

/// The scratch memory of attention_tile in bytes: one 128-byte line for each row or, with wgmma,
/// the row's whole query.
int64_t tile_scratch(int64_t head_dim, bool wgmma);
/// The scratch memory of attention_step in bytes.
int64_t step_scratch(int64_t head_dim);

}  // namespace maco::functions
