// Ops that only move elements, one file each; movement.cpp lists them.
#pragma once

#include <optional>
#include <string>

#include "compiler/ops/op.h"

namespace maco::ops {

/// The kind of the op that passes make where a value needs a tensor of its own.
inline constexpr const char* kCopy = "copy";

OpDef cast_op();  // cast_copy.cpp
OpDef copy_op();
OpDef reshape_op();
OpDef transpose_op();
OpDef slice_op();
OpDef concat_op();
OpDef split_op();
OpDef pad_op();

/// The attribute `axis`, counted from the front, for an input of `rank` axes. Reports and returns
/// nothing if there is no such axis.
std::optional<int> axis_of(InferContext& context, int rank);

/// The columns of an operand's rows that an op takes in place of all, as if a slice stood before
/// it. Rules of `fuse` write them as `first_column` and `columns`.
struct Columns {
  int64_t first = 0, count = 0;
};
/// The columns that an op takes of an operand with `all` columns. `context` is an InferContext or a
/// TileContext.
template <class Context>
Columns columns_of(Context& context, int64_t all) {
  const int64_t first = context.integer("first_column", 0);
  return {first, context.integer("columns", all - first)};
}
inline const AttrSpec kFirstColumn = {"first_column", AttrType::Int, false, "0", {}, true};
inline const AttrSpec kColumns = {"columns", AttrType::Int, false, "all of x's", {}, true};
/// Reports columns that an operand of `all` columns doesn't have.
void check_columns(InferContext& context, int64_t all);
/// The columns that a slice takes of each row of a matrix, if they lie side by side.
std::optional<Columns> sliced_columns(const ir::Graph& graph, const ir::Op& slice);

/// How many elements one index of axis `axis` has: the product of the extents behind it, which are
/// constants.
int64_t inner_size(const ir::Shape& shape, int axis);

}  // namespace maco::ops
