// slice: indices begin, begin + step, ... below end, along one axis.
//
// Constants are clipped as in NumPy. If dims or the rank decide, the slice must lie inside the axis
// for all their values, and be equally long on every rank.
#include <fmt/format.h>

#include "compiler/ops/attrs.h"
#include "compiler/ops/by_rows.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

using ir::Expr;

namespace {

struct Slice {
  Expr begin, extent;
  int64_t step = 1;
  std::string attr, error;  // what is wrong with which attribute
};

std::optional<ir::Interval> range_of(const ir::Graph& graph, const Expr& e) {
  return ir::bounds(ir::canonical(e), [&](std::string_view n) { return graph.range_of(n); });
}

// `e`, counted from the front and, as far as both are known, clipped to the extent `n`.
Expr from_front(const ir::Graph& graph, const Expr& e, const Expr& n) {
  const auto r = range_of(graph, e);
  Expr at = r && r->hi < 0 ? ir::canonical(n + e) : ir::canonical(e);
  const auto c = at.constant(), limit = n.constant();
  if (c && *c < 0) at = Expr(0);
  if (c && limit && *c > *limit) at = n;
  return at;
}

Slice slice_of(const ir::Graph& graph, const ir::Op& op, const Expr& n) {
  Slice s;
  const auto step = attr_expr(graph, op, "step").value_or(Expr(1)).constant();
  if (!step || *step < 1) {
    s.attr = "step";
    s.error = "'step' of 'slice' must be a constant of at least 1";
    return s;
  }
  s.step = *step;
  s.begin = from_front(graph, attr_expr(graph, op, "begin").value_or(Expr(0)), n);
  const Expr end = from_front(graph, attr_expr(graph, op, "end").value_or(n), n);
  const std::string which =
      fmt::format("[{}, {}) of an axis of {}", s.begin.str(), end.str(), n.str());
  const auto lo = range_of(graph, s.begin), length = range_of(graph, end - s.begin),
             rest = range_of(graph, n - end);
  if (!lo || lo->lo < 0) {
    s.attr = "begin";
    s.error = fmt::format("'slice' takes {}, which may begin before 0", which);
  } else if (!rest || rest->lo < 0) {
    s.attr = "end";
    s.error = fmt::format("'slice' takes {}, which may reach beyond it", which);
  } else if (!length || length->lo < 1) {
    s.attr = op.attrs.count("end") ? "end" : "begin";
    s.error = fmt::format("'slice' takes {}, which may be empty", which);
  } else {
    s.extent =
        ir::canonical(s.step == 1 ? end - s.begin
                                  : Expr::binary(Expr::Kind::Div, end - s.begin + Expr(s.step - 1),
                                                 Expr(s.step)));
    if (s.extent.uses("rank")) {
      s.attr = "end";
      s.error = fmt::format(
          "'slice' takes {}, whose length depends on the rank; all ranks must have the same shapes",
          which);
    }
  }
  return s;
}

void infer_slice(InferContext& c) {
  const Type in = c.in(0);
  const auto axis = axis_of(c, c.rank_of(0));
  if (!axis) return;
  const Slice s = slice_of(c.graph(), c.op(), c.extent(0, *axis));
  if (!s.error.empty()) {
    c.error_attr(s.attr, s.error);
    return;
  }
  ir::Shape shape = in.shape;
  shape[static_cast<size_t>(*axis)] = s.extent;
  c.set_out(0, c.out_dtype(0, in.dtype), shape);
}

void tile_slice(TileContext& c) {
  const ir::Shape& in = c.shape(c.op().in[0]);
  const ir::Shape& out = c.shape(c.op().out[0]);
  const int64_t given = c.integer("axis", 0);
  const auto axis =
      static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(in.size()) : given);
  const Slice s = slice_of(c.graph(), c.op(), in[axis]);
  const std::vector<int64_t> from = row_major(in), to = row_major(out);
  StridedCopy copy;
  copy.in = c.in(0);
  copy.out = c.out(0);
  for (size_t i = 0; i < in.size(); ++i)
    copy.axes.push_back({out[i], from[i] * (i == axis ? s.step : 1), to[i]});
  copy.in_offset = s.begin;
  copy.in_unit = from[axis];
  tile_strided_copy(c, copy);
}

}  // namespace

void check_columns(InferContext& c, int64_t all) {
  const Columns columns = columns_of(c, all);
  if (columns.first < 0 || columns.count < 1 || columns.first > all - columns.count)
    c.error_attr(c.has("columns") ? "columns" : "first_column",
                 fmt::format("columns [{}, {}) aren't in an operand of {}", columns.first,
                             columns.first + columns.count, all));
}

std::optional<Columns> sliced_columns(const ir::Graph& graph, const ir::Op& slice) {
  const ir::Shape& shape = graph[slice.in[0]].shape;
  const auto axis = attr_expr(graph, slice, "axis").value_or(Expr(0)).constant();
  if (shape.size() != 2 || (axis != 1 && axis != -1)) return std::nullopt;
  const Slice s = slice_of(graph, slice, shape[1]);
  const auto begin = s.begin.constant(), extent = s.extent.constant();
  if (!s.error.empty() || s.step != 1 || !begin || !extent) return std::nullopt;
  return Columns{*begin, *extent};
}

OpDef slice_op() {
  OpDef d;
  d.kind = "slice";
  d.summary = "indices begin, begin + step, ... below end of one axis";
  d.attrs = {{"axis", AttrType::Int, true, "", {}},
             {"begin", AttrType::Int, false, "0", {}},
             {"end", AttrType::Int, false, "the axis's extent", {}},
             {"step", AttrType::Int, false, "1", {}}};
  d.infer = infer_slice;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_slice;
  d.refuse_stage = by_rows_of_axis;
  return d;
}

}  // namespace maco::ops
