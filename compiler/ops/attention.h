// What attention shares with the ops that passes make of it.
#pragma once

#include "compiler/ops/op.h"

namespace maco::ops {

/// Checks `window` and `softcap` of an op that has `causal` and `scale`; `scale` is
/// 1/sqrt(head_dim) if it isn't given.
void check_window_and_cap(InferContext& context, int64_t head_dim);

}  // namespace maco::ops
