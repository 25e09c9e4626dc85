// pad: copies each row of a matrix, or each run of `run` elements of it, and adds zeros behind it
// up to `columns` elements, or cuts it to `columns`. Also for the transposed matrix.
// prepare-operands adds it before ops that are faster with such rows.
#include <fmt/format.h>

#include "compiler/ops/attrs.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"

namespace maco::ops {

namespace {

void infer_pad(InferContext& c) {
  const Type in = c.in(0);
  const bool turned = c.flag("transposed", false);
  const auto given = in.shape[turned ? 0 : in.shape.size() - 1].constant();
  const int64_t columns = c.integer("columns", 0), run = c.integer("run", given.value_or(1));
  if (turned && (in.shape.size() != 2 || c.has("run")))
    c.error(fmt::format("'pad' transposes two axes, in no runs, and {} has {}",
                        describe(c.graph(), c.op().in[0]), in.shape.size()));
  else if (!given || run < 1 || *given % run != 0)
    c.error_attr("run", fmt::format("rows of {} aren't whole runs of {}",
                                    describe(c.graph(), c.op().in[0]), run));
  else if (columns < 1)
    c.error_attr("columns", fmt::format("'pad' makes rows of at least 1, not {}", columns));
  if (c.failed()) return;
  ir::Shape shape = in.shape;
  if (turned) shape[0] = shape[1];
  shape.back() = ir::Expr(*given / run * columns);
  c.set_out(0, in.dtype, shape);
}

void tile_pad(TileContext& c) {
  StridedCopy copy;
  copy.in = c.in(0);
  copy.out = c.out(0);
  const int64_t columns = c.integer("columns", 1);
  const ir::Expr kept(columns);
  if (c.flag("transposed", false)) {
    copy.axes = {{copy.out.rows, 1, columns}, {kept, copy.in.cols, 1}};
    if (columns > copy.in.max_rows) copy.given = copy.in.max_rows;
  } else {
    const int64_t run = c.integer("run", copy.in.cols);
    copy.axes = {{copy.out.rows, copy.in.cols, copy.out.cols},
                 {ir::Expr(copy.in.cols / run), run, columns},
                 {kept, 1, 1}};
    if (columns > run) copy.given = run;
  }
  tile_strided_copy(c, copy);
}

}  // namespace

OpDef pad_op() {
  OpDef d;
  d.kind = "pad";
  d.summary = "rows, or runs of them, of another length: with zeros behind, or cut off";
  d.internal = true;
  d.attrs = {{"columns", AttrType::Int, true, "", {}},
             {"run", AttrType::Int, false, "the row", {}},
             {"transposed", AttrType::Bool, false, "false", {}}};
  d.infer = infer_pad;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_pad;
  return d;
}

}  // namespace maco::ops
