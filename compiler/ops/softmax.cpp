// softmax over the last axis.
#include "compiler/ops/by_rows.h"
#include "compiler/ops/families.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

namespace {

void infer(InferContext& c) {
  if (!expect_float(c, 0)) return;
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), c.in(0).shape);
}

void tile(TileContext& c) {
  const RowView x = row_view(c, c.op().in[0]), y = row_view(c, c.op().out[0]);
  const int64_t block = c.cut().tile[0];
  const ir::CallId call = c.call("softmax",
                                 {{"X", x.mat.dtype},
                                  {"Y", y.mat.dtype},
                                  c.value("rows", x.rows),
                                  c.value("cols", x.cols),
                                  {"N", x.max_cols},
                                  {"BR", block}},
                                 {x.mat.buffer, y.mat.buffer});
  c.announce_all(tiles_of(x.max_rows, block));
  for (int64_t r = 0; r < x.max_rows; r += block)
    c.task(call, static_cast<uint32_t>(r / block),
           {read(x.block(r, r + block)), write(y.block(r, r + block))});
}

}  // namespace

std::vector<OpDef> softmax_ops() {
  OpDef d;
  d.kind = "softmax";
  d.summary = "exp(x) / sum(exp(x)) over the last axis";
  d.infer = infer;
  d.tile_axes = kRowAxes;
  d.choose = choose_rows;
  d.tile = tile;
  d.refuse_stage = by_whole_rows;
  return {d};
}

}  // namespace maco::ops
