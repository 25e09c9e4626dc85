// rmsnorm: x / sqrt(mean(x^2) + eps) * w. layernorm: (x - mean) / sqrt(variance + eps) * w + b.
// Over the last axis.
#include <fmt/format.h>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/families.h"
#include "compiler/ops/rowwise.h"

namespace maco::ops {

namespace {

// The inputs behind x are vectors as long as x's last axis.
void infer_norm(InferContext& c) {
  if (!expect_float(c, 0) || !expect_constant_row(c, 0)) return;
  const ir::Expr n = c.extent(0, -1);
  for (int i = 1; i < c.inputs(); ++i) {
    if (!expect_float(c, i)) continue;
    if (c.in(i).shape != ir::Shape{n}) {
      c.error_in(i, fmt::format("'{}' of {} needs '{}' of shape [{}], but it has {}", c.op().kind,
                                describe(c.graph(), c.op().in[0]),
                                c.graph()[c.op().in[static_cast<size_t>(i)]].name, n.str(),
                                to_string(c.in(i).shape)));
      c.note_in(i);
    }
  }
  if (c.number("eps", 0) < 0) c.error_attr("eps", "'eps' must not be negative");
  c.set_out(0, c.out_dtype(0, c.in(0).dtype), c.in(0).shape);
}

void tile_norm(TileContext& c, const char* function, double eps,
               const std::vector<std::string>& types) {
  const RowView x = row_view(c, c.op().in[0]), y = row_view(c, c.op().out[0]);
  const int64_t block = c.cut().tile[0];
  std::vector<ir::Param> params;
  std::vector<ir::BufferId> operands;
  for (size_t i = 0; i < c.op().in.size(); ++i) {
    const Mat m = c.in(static_cast<int>(i));
    params.push_back({types[i], m.dtype});
    operands.push_back(m.buffer);
  }
  params.push_back({"Y", y.mat.dtype});
  operands.push_back(y.mat.buffer);
  params.push_back(c.value("rows", x.rows));
  params.push_back({"N", x.max_cols});
  params.push_back({"BR", block});
  params.push_back({"eps", c.number("eps", eps)});
  const ir::CallId call = c.call(function, std::move(params), std::move(operands));
  c.announce_all(tiles_of(x.max_rows, block));
  for (int64_t r = 0; r < x.max_rows; r += block) {
    std::vector<ir::Access> accesses = {read(x.block(r, r + block))};
    for (size_t i = 1; i < c.op().in.size(); ++i)
      accesses.push_back(read(whole(c.in(static_cast<int>(i)))));
    accesses.push_back(write(y.block(r, r + block)));
    c.task(call, static_cast<uint32_t>(r / block), std::move(accesses));
  }
}

void tile_rmsnorm(TileContext& c) { tile_norm(c, "rmsnorm", 1e-6, {"X", "W"}); }
void tile_layernorm(TileContext& c) { tile_norm(c, "layernorm", 1e-5, {"X", "W", "B"}); }

OpDef def(const char* kind, const char* summary, int inputs, const char* eps,
          void (*tile)(TileContext&)) {
  OpDef d;
  d.kind = kind;
  d.summary = summary;
  d.min_in = d.max_in = inputs;
  d.attrs = {{"eps", AttrType::Number, false, eps, {}, false}};
  d.infer = infer_norm;
  d.tile_axes = kRowAxes;
  d.choose = choose_rows;
  d.tile = tile;
  d.refuse_stage = by_whole_rows;
  return d;
}

}  // namespace

std::vector<OpDef> norm_ops() {
  return {
      def("rmsnorm", "x / sqrt(mean(x^2) + eps) * w over the last axis", 2, "1e-6", tile_rmsnorm),
      def("layernorm", "(x - mean) / sqrt(variance + eps) * w + b over the last axis", 3, "1e-5",
          tile_layernorm)};
}

}  // namespace maco::ops
