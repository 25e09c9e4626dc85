// What the choice of splits needs to know of the device function attention_step.
#pragma once

#include <cstdint>

#include "compiler/cost/model.h"
#include "compiler/functions/function.h"

namespace maco::functions {

/// Of runtime/device/ops/attention_step.cuh, which has the same numbers: rows of a task and most
/// new rows; elements of a head that are in a page together; the longest head.
inline constexpr int64_t kStepRows = 16, kStepGroup = 64, kStepHeadDim = 128;

/// A task of attention_step.
struct AttentionStep {
  int64_t head_dim = 1;
  int64_t keys = 1;  // of the cache that count in an ordinary launch
  int64_t splits = 1;
  int64_t element_bytes = 2;
  int64_t page_keys = 1;  // step_page_keys
};
cost::Work step_work(const AttentionStep& step, const cost::Machine& machine);
/// Keys that a page holds.
int64_t step_page_keys(int64_t page_bytes);
/// The box that a page of keys or values is; none if no map describes it. `width`: columns of a
/// cache.
std::optional<ir::Load::Box> step_box(int64_t head_dim, int64_t width, int64_t page_bytes);

}  // namespace maco::functions
