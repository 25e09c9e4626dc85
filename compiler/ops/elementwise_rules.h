// The shape rule and the tile rule that all elementwise ops share.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/ops/tile_shape.h"
#include "ir/body.h"

namespace maco::ops {

/// The result has the first input's shape and the dtype of the body's last step.
void infer_elementwise(InferContext& context);
void cut_elementwise(OpDef& def);

/// Makes tasks that compute `body` of `in`, tile by tile of `out`. The caller announces them: there
/// are as many as body_tasks says. Operands of Spread::Full have the shape of `out`.
void tile_body(TileContext& context, const ir::BodyParam& body, const std::vector<Mat>& in,
               const Mat& out, TileShape tile);
int64_t body_tasks(const Mat& out, TileShape tile);

}  // namespace maco::ops
