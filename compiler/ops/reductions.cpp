// sum, mean, max, argmax over the last axis: one result for each row.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/families.h"
#include "compiler/ops/rowwise.h"
#include "compiler/ops/tile_shape.h"

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

// The op's kind is the function's parameter `kind`.
void tile_reduce(TileContext& c) { tile_rows(c, "reduce", {{"kind", ir::Word{c.op().kind}}}); }

// Rows of argmax may be cut into parts, so that a few long ones keep all SMs busy.
constexpr int64_t kLongRow = 16384, kLeastPart = 2048;

// The columns of a task of the op that makes the operand, if that op's tasks have all rows, and
// rows are long and few (one or two for each warp). Parts of this width each follow one such task,
// on its SM. Otherwise 0; also 0 if there would be so many parts that the merging task had to look
// at them more than once.
int64_t parts_of_maker(const TileContext& c, const RowView& x) {
  constexpr int64_t kMostRows = 16, kLeastWidth = 64, kMostParts = 2048;
  if (x.max_cols < kLongRow || x.max_rows > kMostRows || !x.cols.is_constant()) return 0;
  for (const ir::Op& op : c.graph().ops) {
    if (op.out.empty() || op.out[0] != c.op().in[0] || c.shape(op.out[0]).size() != 2) continue;
    const Cut made = cut_of(op);
    const OpDef* def = find_op(op.kind);
    if (def && !def->collective && c.may_follow(op.kind) && made.tile.size() == 2 &&
        made.tile[0] >= x.max_rows && made.tile[1] >= kLeastWidth &&
        tiles_of(x.max_cols, made.tile[1]) > 1 && tiles_of(x.max_cols, made.tile[1]) <= kMostParts)
      return made.tile[1];
  }
  return 0;
}

Cut choose_argmax(const TileContext& c) {
  const RowView x = row_view(c, c.op().in[0]);
  if (const int64_t columns = parts_of_maker(c, x); columns > 0)
    return {.tile = {x.max_rows, columns}};
  const int64_t rows = choose_rows(c).tile[0], blocks = tiles_of(x.max_rows, rows);
  const int64_t parts = c.machine().sms / blocks;
  if (x.max_cols < kLongRow || !x.cols.is_constant() || parts < 2)
    return {.tile = {rows, x.max_cols}};
  const int64_t part = std::max(kLeastPart, tiles_of(x.max_cols, parts));
  return {.tile = {rows, std::min(x.max_cols, tiles_of(part, 64) * 64)}};
}
std::string refuse_argmax(const TileContext& c, const Cut& cut) {
  const RowView x = row_view(c, c.op().in[0]);
  if (cut.tile[1] >= x.max_cols) return "";
  if (!x.cols.is_constant()) return "rows whose length a dim decides stay whole";
  if (cut.tile[1] % 64 == 0 || cut.tile[1] == parts_of_maker(c, x)) return "";
  return fmt::format("a tile has whole rows or a multiple of 64 columns, not {}", cut.tile[1]);
}

void tile_argmax(TileContext& c) {
  const RowView x = row_view(c, c.op().in[0]);
  const Mat y = c.out(0);
  const Cut cut = c.cut();
  const int64_t block = cut.tile[0], columns = cut.tile[1];
  if (columns >= x.max_cols) return tile_rows(c, "argmax", {});
  const int64_t parts = tiles_of(x.max_cols, columns);
  // Values are stored as they are compared, so that an infinity stays one.
  const ir::DType values_type = ir::is_float(x.mat.dtype) ? ir::DType::F32 : ir::DType::I32;
  // Whole vectors, as packets need them.
  const int64_t pitch = tiles_of(parts, 4) * 4;
  const auto found = [&](const char* name, ir::DType dtype) {
    return c.rows_buffer(name, dtype, x.rows, x.max_rows, pitch);
  };
  const ir::BufferId values = found("values", values_type),
                     places = found("places", ir::DType::I32);
  const auto of = [&](ir::BufferId buffer, int64_t r, int64_t part, int64_t end) {
    ir::Region region;
    region.buffer = buffer, region.pitch = pitch;
    region.r0 = r, region.r1 = std::min(r + block, x.max_rows);
    region.c0 = part, region.c1 = end;
    return region;
  };
  const ir::CallId each = c.call("argmax_part",
                                 {{"X", x.mat.dtype},
                                  {"A", values_type},
                                  c.value("rows", x.rows),
                                  {"N", x.max_cols},
                                  {"BN", columns},
                                  {"BR", block}},
                                 {x.mat.buffer, values, places});
  const ir::CallId merge = c.call("argmax_merge",
                                  {{"A", values_type},
                                   {"Y", y.dtype},
                                   c.value("rows", x.rows),
                                   {"parts", parts},
                                   {"BR", block}},
                                  {values, places, y.buffer});
  c.announce_all(tiles_of(x.max_rows, block) * (parts + 1));
  for (int64_t r = 0; r < x.max_rows; r += block)
    for (int64_t p = 0; p < parts; ++p) {
      ir::Region from = x.block(r, r + block);
      from.c0 = std::min(p * columns, x.max_cols);
      from.c1 = std::min((p + 1) * columns, x.max_cols);
      c.task(each, static_cast<uint32_t>(r / block * parts + p),
             {read(from), write(of(values, r, p, p + 1)), write(of(places, r, p, p + 1))});
    }
  for (int64_t r = 0; r < x.max_rows; r += block)
    c.task(merge, static_cast<uint32_t>(r / block),
           {read(of(values, r, 0, parts)), read(of(places, r, 0, parts)),
            write(one_per_row(y, r, r + block))});
}

OpDef def(const char* kind, const char* summary, void (*infer)(InferContext&),
          void (*tile)(TileContext&)) {
  OpDef d;
  d.kind = kind;
  d.summary = summary;
  d.infer = infer;
  d.tile_axes = kRowAxes;
  d.choose = choose_rows;
  d.tile = tile;
  d.refuse_stage = by_whole_rows;
  return d;
}

}  // namespace

std::vector<OpDef> reduction_ops() {
  OpDef argmax = def("argmax", "index of the largest element of each row, the first of equals",
                     infer_argmax, tile_argmax);
  argmax.tile_axes = kBlockAxes;
  argmax.choose = choose_argmax;
  argmax.refuse_cut = refuse_argmax;
  return {std::move(argmax), def("sum", "sum over the last axis", infer_reduction, tile_reduce),
          def("mean", "mean over the last axis", infer_mean, tile_reduce),
          def("max", "largest element over the last axis", infer_reduction, tile_reduce)};
}

}  // namespace maco::ops
