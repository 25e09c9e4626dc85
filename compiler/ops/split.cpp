// split: equal parts along an axis, one for each result. One strided copy each.
#include <fmt/format.h>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

using ir::Expr;

namespace {

void infer_split(InferContext& c) {
  const Type in = c.in(0);
  const auto axis = axis_of(c, c.rank_of(0));
  if (!axis) return;
  const auto part = ir::divide_exact(c.extent(0, *axis), c.outputs());
  if (!part) {
    c.error(fmt::format("'split' cannot cut axis {} of {} into {} equal parts", *axis,
                        describe(c.graph(), c.op().in[0]), c.outputs()));
    c.note_in(0);
    return;
  }
  ir::Shape shape = in.shape;
  shape[static_cast<size_t>(*axis)] = *part;
  for (int i = 0; i < c.outputs(); ++i) c.set_out(i, c.out_dtype(i, in.dtype), shape);
}

void tile_split(TileContext& c) {
  const ir::Shape& in = c.shape(c.op().in[0]);
  const int64_t given = c.integer("axis", 0);
  const auto axis =
      static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(in.size()) : given);
  const std::vector<int64_t> from = row_major(in);
  for (int n = 0; n < static_cast<int>(c.op().out.size()); ++n) {
    const ir::Shape& out = c.shape(c.op().out[static_cast<size_t>(n)]);
    const std::vector<int64_t> to = row_major(out);
    StridedCopy copy;
    copy.in = c.in(0);
    copy.out = c.out(n);
    for (size_t i = 0; i < in.size(); ++i) copy.axes.push_back({out[i], from[i], to[i]});
    copy.in_offset = ir::canonical(Expr(n) * out[axis]);
    copy.in_unit = from[axis];
    tile_strided_copy(c, copy);
  }
}

}  // namespace

OpDef split_op() {
  OpDef d;
  d.kind = "split";
  d.summary = "equal parts along an axis, as many as there are results";
  d.max_out = -1;
  d.attrs = {{"axis", AttrType::Int, true, "", {}}};
  d.infer = infer_split;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_split;
  d.refuse_stage = by_rows_of_axis;
  return d;
}

}  // namespace maco::ops
