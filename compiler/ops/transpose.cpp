// transpose: axis i of the result is axis perm[i] of the operand.
#include <fmt/format.h>

#include "compiler/ops/attrs.h"
#include "compiler/ops/movement.h"
#include "compiler/ops/strided.h"
#include "compiler/ops/tile_shape.h"

namespace maco::ops {

namespace {

// The permutation; nothing if `perm` isn't a permutation of `rank` axes.
std::optional<std::vector<size_t>> permutation(const ir::Graph& graph, const ir::Op& op,
                                               size_t rank) {
  std::vector<size_t> perm;
  if (!op.attrs.count("perm")) {
    for (size_t i = 0; i < rank; ++i) perm.push_back(rank - 1 - i);
    return perm;
  }
  std::vector<bool> seen(rank, false);
  for (const ir::Expr& e : attr_list(graph, op, "perm")) {
    const auto n = e.constant();
    const auto r = static_cast<int64_t>(rank);
    if (!n || *n < -r || *n >= r) return std::nullopt;
    perm.push_back(static_cast<size_t>(*n < 0 ? *n + r : *n));
    if (seen[perm.back()]) return std::nullopt;
    seen[perm.back()] = true;
  }
  if (perm.size() != rank) return std::nullopt;
  return perm;
}

void infer_transpose(InferContext& c) {
  const Type in = c.in(0);
  const auto perm = permutation(c.graph(), c.op(), in.shape.size());
  if (!perm) {
    c.error_attr("perm",
                 fmt::format("'perm' of 'transpose' must name each of the {} axes of {} once",
                             in.shape.size(), describe(c.graph(), c.op().in[0])));
    return;
  }
  if (!in.shape[0].is_constant() && (*perm)[0] != 0) {
    c.error(
        fmt::format("'transpose' would move axis 0 of {}, whose extent '{}' depends on a dim; a "
                    "dim may be in axis 0 only",
                    describe(c.graph(), c.op().in[0]), in.shape[0].str()));
    return;
  }
  ir::Shape shape;
  for (size_t p : *perm) shape.push_back(in.shape[p]);
  c.set_out(0, c.out_dtype(0, in.dtype), shape);
}

void tile_transpose(TileContext& c) {
  const ir::Shape& in = c.shape(c.op().in[0]);
  const std::vector<size_t> perm = *permutation(c.graph(), c.op(), in.size());
  const std::vector<int64_t> from = row_major(in), to = row_major(c.shape(c.op().out[0]));
  StridedCopy copy;
  copy.in = c.in(0);
  copy.out = c.out(0);
  for (size_t i = 0; i < perm.size(); ++i) copy.axes.push_back({in[perm[i]], from[perm[i]], to[i]});
  tile_strided_copy(c, copy);
}

}  // namespace

OpDef transpose_op() {
  OpDef d;
  d.kind = "transpose";
  d.summary = "axis i of the result is axis perm[i] of the operand";
  d.attrs = {{"perm", AttrType::IntList, false, "axes reversed", {}}};
  d.infer = infer_transpose;
  d.tile_axes = kStridedAxes;
  d.choose = choose_strided;
  d.tile = tile_transpose;
  d.refuse_stage = [](const ir::Graph& graph, const ir::Op& op, const std::vector<bool>&) {
    const std::vector<ir::Expr> perm = attr_list(graph, op, "perm");
    const auto rank = static_cast<int64_t>(graph[op.in[0]].shape.size());
    const int64_t first = perm.empty() ? rank - 1 : perm[0].constant().value_or(rank);
    return std::string(first == 0 || first == -rank ? "" : "it turns rows into columns");
  };
  return d;
}

}  // namespace maco::ops
