// sum, mean, max, argmax over the last axis: one result for each row.
#include <fmt/format.h>

#include <limits>

#include "compiler/ops/families.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

namespace {

ir::Shape reduced(ir::Shape shape) {
  if (shape.size() == 1) return {ir::Expr(1)};
  shape.pop_back();
  return shape;
}

void infer_reduction(InferContext& c) {
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), reduced(c.in(0).shape));
}

void infer_mean(InferContext& c) {
  const ir::DType t = c.in(0).dtype;
  if (!ir::is_float(t)) {
    c.error_in(0, fmt::format(
                      "'mean' takes floats, but '{}' is {}; use 'sum', which is exact for integers",
                      c.graph()[c.op().in[0]].name, ir::name(t)));
    c.note_in(0);
    return;
  }
  infer_reduction(c);
}

void infer_argmax(InferContext& c) {
  const ir::DType t = c.out_dtype(0, ir::DType::I32);
  if (t != ir::DType::I32) {
    c.error(fmt::format("'argmax' gives i32, not {}; use 'cast' for another type", ir::name(t)));
    return;
  }
  const ir::Expr columns = c.in(0).shape.back();
  const auto range = ir::bounds(columns, [&](std::string_view n) { return c.graph().range_of(n); });
  if (range && range->hi > std::numeric_limits<int32_t>::max()) {
    c.error_in(0, fmt::format("'argmax' gives i32, but the rows of {} have up to {} elements",
                              describe(c.graph(), c.op().in[0]), range->hi));
    c.note_in(0);
    return;
  }
  c.set_out(0, t, reduced(c.in(0).shape));
}

void tile_rows(TileContext& c, const char* function, std::vector<ir::Param> own) {
  const RowView x = row_view(c, c.op().in[0]);
  const Mat y = c.out(0);
  const int64_t block = c.cut().tile[0];
  std::vector<ir::Param> params = {{"X", x.mat.dtype},      {"Y", y.dtype},
                                   c.value("rows", x.rows), c.value("cols", x.cols),
                                   {"N", x.max_cols},       {"BR", block}};
  params.insert(params.end(), own.begin(), own.end());
  const ir::CallId call = c.call(function, std::move(params), {x.mat.buffer, y.buffer});
  c.announce_all(tiles_of(x.max_rows, block));
  for (int64_t r = 0; r < x.max_rows; r += block)
    c.task(call, static_cast<uint32_t>(r / block),
           {read(x.block(r, r + block)), write(one_per_row(y, r, r + block))});
}

// The op's kind is the function's word.
void tile_reduce(TileContext& c) { tile_rows(c, "reduce", {{"kind", ir::Word{c.op().kind}}}); }
void tile_argmax(TileContext& c) { tile_rows(c, "argmax", {}); }

OpDef def(const char* kind, const char* summary, void (*infer)(InferContext&),
          void (*tile)(TileContext&)) {
  OpDef d;
  d.kind = kind;
  d.summary = summary;
  d.infer = infer;
  d.tile_axes = kRowAxes;
  d.choose = choose_rows;
  d.tile = tile;
  return d;
}

}  // namespace

std::vector<OpDef> reduction_ops() {
  return {def("argmax", "index of the largest element of each row, the first of equals",
              infer_argmax, tile_argmax),
          def("sum", "sum over the last axis", infer_reduction, tile_reduce),
          def("mean", "mean over the last axis", infer_mean, tile_reduce),
          def("max", "largest element over the last axis", infer_reduction, tile_reduce)};
}

}  // namespace maco::ops
