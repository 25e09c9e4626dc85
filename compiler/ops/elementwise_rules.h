// The shape rule and the tile rule that all elementwise ops share.
#pragma once

#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

/// The result has the first input's shape and the dtype of the body's last step.
void infer_elementwise(InferContext& context);
void cut_elementwise(OpDef& def);

}  // namespace maco::ops
