// kv_append: x becomes rows at .. at + T of a cache, in place.
//
// If `at` is known only at launch, the cache's tiles are blocks of columns: those of one op never
// overlap, blocks of rows might.
#include <fmt/format.h>

#include "compiler/ops/families.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

using ir::Expr;

namespace {

void infer_kv_append(InferContext& c) {
  const ir::Op& op = c.op();
  const Type cache = c.in(0), x = c.in(1);
  const ir::Tensor& state = c.graph()[op.in[0]];
  const auto name = [&](int i) { return describe(c.graph(), op.in[static_cast<size_t>(i)]); };
  if (state.kind != ir::TensorKind::State) {
    c.error_in(
        0, fmt::format("'kv_append' appends to a state, but '{}' is {} {}", state.name,
                       state.kind == ir::TensorKind::Input || state.kind == ir::TensorKind::Output
                           ? "an"
                           : "a",
                       ir::name(state.kind)));
    c.note_in(0);
    return;
  }
  if (op.out[0] != op.in[0]) {
    c.error(fmt::format("'kv_append' writes '{}' in place: its result must be '{}', not '{}'",
                        state.name, state.name, c.graph()[op.out[0]].name));
    return;
  }
  if (x.shape.size() == 2) check_columns(c, *x.shape[1].constant());
  if (c.failed()) return;
  if (cache.shape.size() != 2 || x.shape.size() != 2 ||
      *cache.shape[1].constant() != columns_of(c, *x.shape[1].constant()).count) {
    c.error_in(
        1, fmt::format("'kv_append' cannot append {} to {}: both must have 2 axes, of equal width",
                       name(1), name(0)));
    c.note_in(0);
    return;
  }
  if (!same_class(cache.dtype, x.dtype)) {
    c.error_in(1, fmt::format("'kv_append' cannot append {} to {}; cast it", ir::name(x.dtype),
                              ir::name(cache.dtype)));
    return;
  }
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  const Expr at = c.expr("at").value_or(Expr(0));
  const auto first = ir::bounds(ir::canonical(at), range);
  const Expr end = ir::canonical(at + x.shape[0]);
  const auto left = ir::bounds(ir::canonical(cache.shape[0] - end), range);
  if (!first || first->lo < 0) {
    c.error_attr("at", fmt::format("'at' of 'kv_append' is '{}', which may be negative", at.str()));
  } else if (!left || left->lo < 0) {
    const auto last = ir::bounds(end, range);
    c.error_attr(
        "at",
        fmt::format(
            "'kv_append' may write beyond '{}': rows [{}, {}) end at up to {}, but it has {} rows",
            state.name, at.str(), end.str(), last ? std::to_string(last->hi) : "an unknown row",
            cache.shape[0].str()));
    c.note_in(0);
  }
  c.set_out(0, cache.dtype, cache.shape);
}

void tile_kv_append(TileContext& c) {
  StridedCopy copy;
  copy.in = c.in(1);
  copy.out = c.out(0);
  const int64_t n = copy.out.cols;
  copy.axes = {{c.shape(c.op().in[1])[0], copy.in.cols, n}, {Expr(n), 1, 1}};
  if (const Columns columns = columns_of(c, copy.in.cols); columns.first > 0) {
    copy.in_offset = Expr(columns.first);
    copy.in_unit = 1;
  }
  copy.out_offset = ir::canonical(c.expr("at").value_or(Expr(0)));
  copy.out_unit = n;
  copy.partial = copy.in.dynamic();
  tile_strided_copy(c, copy);
}

}  // namespace

std::vector<OpDef> kv_append_ops() {
  OpDef d;
  d.kind = "kv_append";
  d.summary = "x becomes rows at .. at + T of the state, in place";
  d.min_in = d.max_in = 2;
  d.writes_part = true;
  d.in_place = [](const ir::Op& op, ir::TensorId out) {
    return op.in[0] == out && op.in[1] != out;
  };
  d.attrs = {{"at", AttrType::RuntimeInt, true, "", {}}, kFirstColumn, kColumns};
  d.infer = infer_kv_append;
  d.tile_axes = kStridedAxes;
  d.choose = [](const TileContext& c) {
    const Mat x = c.in(1);
    return choose_strided(c, x.max_rows * c.out(0).cols);
  };
  d.tile = tile_kv_append;
  d.refuse_stage = [](const ir::Graph&, const ir::Op&, const std::vector<bool>&) {
    return std::string("its result has the rows of all microbatches");
  };
  return {d};
}

}  // namespace maco::ops
