// reshape: the same elements in row-major order under another shape.
#include <fmt/format.h>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

using ir::Expr;

namespace {

Expr product(const ir::Shape& shape) {
  Expr p(1);
  for (const Expr& e : shape) p = p * e;
  return ir::canonical(p);
}

// Finds x with x * known == total for all values of dims, if x is a constant or `known` a constant
// divisor.
std::optional<Expr> quotient(const ir::Graph& graph, const Expr& total, const Expr& known) {
  if (auto k = known.constant()) return *k > 0 ? ir::divide_exact(total, *k) : std::nullopt;
  const auto range = [&](std::string_view n) { return graph.range_of(n); };
  const auto t = ir::bounds(total, range), k = ir::bounds(known, range);
  if (!t || !k || k->hi <= 0) return std::nullopt;
  const Expr q(t->hi / k->hi);
  return ir::same(q * known, total) ? std::optional(q) : std::nullopt;
}

void infer_reshape(InferContext& c) {
  const Type in = c.in(0);
  ir::Shape shape = c.list("shape");
  const Expr total = product(in.shape);
  if (shape.empty() || shape.size() > 4) {
    c.error_attr("shape",
                 fmt::format("'shape' of 'reshape' has {} entries, but tensors have 1 to 4 axes",
                             shape.size()));
    return;
  }
  Expr known(1);
  int open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto n = shape[i].constant();
    if (n == -1) {
      if (open >= 0) {
        c.error_attr("shape", "'shape' of 'reshape' may leave one entry open (-1), not two");
        return;
      }
      open = static_cast<int>(i);
    } else if (n && *n < 1) {
      c.error_attr(
          "shape",
          fmt::format("'shape' of 'reshape' has the entry {}, but extents are at least 1", *n));
      return;
    } else {
      known = known * shape[i];
    }
  }
  known = ir::canonical(known);
  if (open >= 0) {
    const auto rest = quotient(c.graph(), total, known);
    if (!rest) {
      c.error_attr(
          "shape",
          fmt::format("'reshape' cannot leave -1 in {}: {} elements of {} are not a multiple of {}",
                      to_string(shape), total.str(), describe(c.graph(), c.op().in[0]),
                      known.str()));
      return;
    }
    shape[static_cast<size_t>(open)] = *rest;
  } else if (known != total) {
    c.error_attr("shape", fmt::format("'reshape' cannot turn {} into {}: {} elements into {}",
                                      describe(c.graph(), c.op().in[0]), to_string(shape),
                                      total.str(), known.str()));
    return;
  }
  c.set_out(0, c.out_dtype(0, in.dtype), shape);
}

void tile_reshape(TileContext& c) {
  StridedCopy copy;
  copy.in = c.in(0);
  copy.out = c.out(0);
  const ir::Shape& shape = c.shape(c.op().out[0]);
  const std::vector<int64_t> strides = row_major(shape);
  for (size_t i = 0; i < shape.size(); ++i) copy.axes.push_back({shape[i], strides[i], strides[i]});
  tile_strided_copy(c, copy);
}

}  // namespace

OpDef reshape_op() {
  OpDef d;
  d.kind = "reshape";
  d.summary = "the same elements under another shape; one entry may be -1";
  d.attrs = {{"shape", AttrType::IntList, true, "", {}}};
  d.infer = infer_reshape;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_reshape;
  d.refuse_stage = by_rows;
  return d;
}

}  // namespace maco::ops
