// concat: joins the operands along one axis, by one strided copy each.
#include <fmt/format.h>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

using ir::Expr;

namespace {

void infer_concat(InferContext& c) {
  const Type first = c.in(0);
  const auto axis = axis_of(c, c.rank_of(0));
  if (!axis) return;
  const auto along = static_cast<size_t>(*axis);
  ir::Shape shape = first.shape;
  for (int i = 1; i < c.inputs(); ++i) {
    const Type t = c.in(i);
    const auto name = [&](int n) { return describe(c.graph(), c.op().in[static_cast<size_t>(n)]); };
    if (!same_class(first.dtype, t.dtype)) {
      c.error_in(i, fmt::format("'concat' cannot mix {} and {}; cast one of them",
                                ir::name(first.dtype), ir::name(t.dtype)));
      c.note_in(i);
      continue;
    }
    bool fits = t.shape.size() == shape.size();
    for (size_t a = 0; fits && a < shape.size(); ++a) fits = a == along || t.shape[a] == shape[a];
    if (!fits) {
      c.error_in(i,
                 fmt::format("'concat' cannot put {} behind {}: all axes but axis {} must be equal",
                             name(i), name(0), *axis));
      c.note_in(i);
      continue;
    }
    shape[along] = ir::canonical(shape[along] + t.shape[along]);
  }
  if (!c.failed()) c.set_out(0, c.out_dtype(0, first.dtype), shape);
}

void tile_concat(TileContext& c) {
  const ir::Shape& out = c.shape(c.op().out[0]);
  const int64_t given = c.integer("axis", 0);
  const auto axis =
      static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(out.size()) : given);
  const std::vector<int64_t> to = row_major(out);
  Expr at(0);
  for (int n = 0; n < static_cast<int>(c.op().in.size()); ++n) {
    const ir::Shape& in = c.shape(c.op().in[static_cast<size_t>(n)]);
    const std::vector<int64_t> from = row_major(in);
    StridedCopy copy;
    copy.in = c.in(n);
    copy.out = c.out(0);
    for (size_t i = 0; i < in.size(); ++i) copy.axes.push_back({in[i], from[i], to[i]});
    copy.out_offset = ir::canonical(at);
    copy.out_unit = to[axis];
    // Where a dim makes this operand shorter, the regions of its last tiles contain the next
    // operand's rows.
    const bool last = n + 1 == static_cast<int>(c.op().in.size());
    copy.partial = axis == 0 && !last && !in[0].is_constant();
    tile_strided_copy(c, copy);
    at = at + in[axis];
  }
}

}  // namespace

OpDef concat_op() {
  OpDef d;
  d.kind = "concat";
  d.summary = "the operands behind each other along an axis";
  d.max_in = -1;
  d.attrs = {{"axis", AttrType::Int, true, "", {}}};
  d.infer = infer_concat;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_concat;
  d.refuse_stage = by_rows_of_axis;
  return d;
}

}  // namespace maco::ops
