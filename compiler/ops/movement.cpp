#include "compiler/ops/movement.h"

#include <fmt/format.h>

#include "compiler/ops/families.h"

namespace maco::ops {

std::vector<OpDef> movement_ops() {
  return {cast_op(),  copy_op(),   reshape_op(), transpose_op(),
          slice_op(), concat_op(), split_op(),   pad_op()};
}

std::optional<int> axis_of(InferContext& c, int rank) {
  const int64_t axis = c.integer("axis", 0);
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  c.error_attr("axis",
               fmt::format("'axis' of '{}' is {}, but {} has {} {}", c.op().kind, axis,
                           describe(c.graph(), c.op().in[0]), rank, rank == 1 ? "axis" : "axes"));
  return std::nullopt;
}

int64_t inner_size(const ir::Shape& shape, int axis) {
  int64_t n = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) n *= *shape[i].constant();
  return n;
}

}  // namespace maco::ops
