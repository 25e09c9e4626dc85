// Ops that only move elements, one file each; movement.cpp lists them.
#pragma once

#include <optional>
#include <string>

#include "compiler/ops/op.h"

namespace maco::ops {

OpDef cast_op();  // cast_copy.cpp
OpDef copy_op();
OpDef reshape_op();
OpDef transpose_op();
OpDef slice_op();
OpDef concat_op();
OpDef split_op();

/// Attribute `axis`, counted from the front, for an input of `rank` axes. Reports and returns
/// nothing if there is no such axis.
std::optional<int> axis_of(InferContext& context, int rank);

/// The elements of one index of axis `axis`: the product of the extents behind it, which are
/// constants.
int64_t inner_size(const ir::Shape& shape, int axis);

}  // namespace maco::ops
