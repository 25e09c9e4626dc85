// pad: a matrix with zeros behind each row, or behind each column of it transposed: rows that begin
// on whole 16 bytes, for products (prepare-operands).
#include <fmt/format.h>

#include "compiler/ops/attrs.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"

namespace maco::ops {

namespace {

bool is_turned(const ir::Op& op) { return attr_flag(op, "transposed", false); }

void infer_pad(InferContext& c) {
  const Type in = c.in(0);
  const bool turned = is_turned(c.op());
  const auto given = in.shape[turned ? 0 : in.shape.size() - 1].constant();
  const int64_t columns = c.integer("columns", 0);
  if (turned && in.shape.size() != 2) {
    c.error(fmt::format("'pad' transposes two axes, and {} has {}",
                        describe(c.graph(), c.op().in[0]), in.shape.size()));
  } else if (!given || columns < *given) {
    c.error_attr("columns", fmt::format("'pad' gives each row at least as many columns as {} has",
                                        describe(c.graph(), c.op().in[0])));
  } else {
    ir::Shape shape = in.shape;
    if (turned) shape[0] = shape[1];
    shape.back() = ir::Expr(columns);
    c.set_out(0, in.dtype, shape);
  }
}

void tile_pad(TileContext& c) {
  StridedCopy copy;
  copy.in = c.in(0);
  copy.out = c.out(0);
  const int64_t columns = copy.out.cols;
  if (is_turned(c.op())) {
    copy.axes = {{copy.out.rows, 1, columns}, {ir::Expr(columns), copy.in.cols, 1}};
    copy.given = copy.in.max_rows;
  } else {
    copy.axes = {{copy.out.rows, copy.in.cols, columns}, {ir::Expr(columns), 1, 1}};
    copy.given = copy.in.cols;
  }
  tile_strided_copy(c, copy);
}

}  // namespace

OpDef pad_op() {
  OpDef d;
  d.kind = "pad";
  d.summary = "a matrix with zeros behind each row";
  d.internal = true;
  d.attrs = {{"columns", AttrType::Int, true, "", {}},
             {"transposed", AttrType::Bool, false, "false", {}}};
  d.infer = infer_pad;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_pad;
  return d;
}

}  // namespace maco::ops
