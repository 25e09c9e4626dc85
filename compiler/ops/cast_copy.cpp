// cast, copy: elementwise ops whose function is the conversion between the dtypes of operand and
// result.
#include <fmt/format.h>

#include "compiler/ops/elementwise_rules.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

namespace {
void infer_cast(InferContext& c) {
  const ir::Tensor& out = c.graph()[c.op().out[0]];
  if (!c.op().dtype && (out.kind == ir::TensorKind::Temp || out.shape.empty())) {
    c.error(fmt::format("'cast' needs 'dtype': the type that '{}' should have", out.name));
    return;
  }
  infer_elementwise(c);
}
}  // namespace

OpDef cast_op() {
  OpDef d;
  d.kind = "cast";
  d.converts = true;
  d.summary = "converts to 'dtype'; float to integer truncates and saturates, NaN to 0";
  d.infer = infer_cast;
  cut_elementwise(d);
  return d;
}

OpDef copy_op() {
  OpDef d;
  d.kind = kCopy;
  d.converts = true;
  d.summary = "the same elements in a tensor of its own";
  // The copy was a collective in a world of one. Other ops may still have to wait for it, or it for
  // them.
  d.attrs = {{"collective", AttrType::Bool, false, "false", {}, true}};
  d.infer = infer_elementwise;
  cut_elementwise(d);
  return d;
}

}  // namespace maco::ops
