// embedding: row ids[i] of the table becomes row i of the result. An id outside the table stops the
// run and touches nothing.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/families.h"
#include "compiler/ops/tile.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

namespace {

void infer_embedding(InferContext& c) {
  const Type table = c.in(0), ids = c.in(1);
  const auto name = [&](int i) { return describe(c.graph(), c.op().in[static_cast<size_t>(i)]); };
  if (table.shape.size() != 2) {
    c.error_in(0, fmt::format("'embedding' needs a table of 2 axes, but '{}' has {}", name(0),
                              table.shape.size()));
    c.note_in(0);
  }
  if (ids.dtype != ir::DType::I32) {
    c.error_in(1, fmt::format("'embedding' needs ids of type i32, but '{}' is {}", name(1),
                              ir::name(ids.dtype)));
    c.note_in(1);
  }
  if (ids.shape.size() > 3) {
    c.error_in(1, fmt::format("'embedding' adds an axis, and '{}' has 4 already", name(1)));
    c.note_in(1);
  }
  if (c.failed()) return;
  ir::Shape shape = ids.shape;
  shape.push_back(table.shape[1]);
  c.set_out(0, c.out_dtype(0, table.dtype), shape);
}

void tile_embedding(TileContext& c) {
  const Mat table = c.in(0), ids = c.in(1), out = c.out(0);
  const TileShape t = block_of(c.cut());
  const ir::CallId call = c.call("embedding",
                                 {{"X", table.dtype},
                                  {"Y", out.dtype},
                                  c.value("rows", out.rows),
                                  c.value("limit", table.rows),
                                  {"N", out.cols},
                                  {"BM", t.bm},
                                  {"BN", t.bn},
                                  {"V", vector_width({table.dtype, out.dtype}, {out.cols})}},
                                 {table.buffer, ids.buffer, out.buffer});
  c.announce_all(tiles_of(out.max_rows, t.bm) * tiles_of(out.cols, t.bn));
  uint32_t tile = 0;
  for (int64_t r = 0; r < out.max_rows; r += t.bm)
    for (int64_t n = 0; n < out.cols; n += t.bn)
      c.task(call, tile++,
             {read(box(table, 0, table.max_rows, n, n + t.bn)),
              read(flat(ids, r, std::min(r + t.bm, out.max_rows))),
              write(box(out, r, r + t.bm, n, n + t.bn))});
}

}  // namespace

std::vector<OpDef> embedding_ops() {
  OpDef d;
  d.kind = "embedding";
  d.summary = "rows of a table by i32 ids; an id outside the table ends the run with status 4";
  d.min_in = d.max_in = 2;
  d.infer = infer_embedding;
  d.tile_axes = kBlockAxes;
  d.choose = choose_block;
  d.refuse_cut = refuse_block;
  d.tile = tile_embedding;
  d.refuse_stage = by_last_rows;
  return {d};
}

}  // namespace maco::ops
