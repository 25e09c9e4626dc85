// Stage append: the last columns of the result become rows of one or two caches, as by kv_append.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/matmul.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"

namespace maco::ops {

namespace {

// Columns [begin, end) of the result that become rows of a cache, which is output `out`.
struct Appended {
  int out = 1;
  int64_t begin = 0, end = 0;
};
// The first cache's columns come before the next cache's.
std::vector<Appended> appended(const ir::Graph& graph, const ir::Op& op) {
  std::vector<Appended> list;
  int64_t at = attr_expr(graph, op, "first_appended").value_or(ir::Expr(0)).constant().value_or(0);
  for (size_t i = 1; i < op.out.size(); ++i) {
    const int64_t columns = graph[op.out[i]].shape.back().constant().value_or(0);
    list.push_back({static_cast<int>(i), at, at + columns});
    at += columns;
  }
  return list;
}

// Caches must be states with room for all rows, wherever these begin.
void check(InferContext& c, const MatmulInputs& inputs, int) {
  const ir::Op& op = c.op();
  if (inputs.bias || c.has("activation") || c.has("epilogue") || c.in(0).shape.size() != 2)
    return c.error("'matmul' appends only plain products, and products that turn heads, to states");
  const auto range = [&](std::string_view n) { return c.graph().range_of(n); };
  const ir::Expr at = c.expr("append_at").value_or(ir::Expr(0));
  const auto first = ir::bounds(ir::canonical(at), range),
             count = ir::bounds(c.in(0).shape[0], range);
  constexpr size_t kMost = 2;  // caches
  if (op.out.size() < 2 || op.out.size() > 1 + kMost || !first || !count || first->lo < 0)
    return c.error_attr("append_at", "'matmul' appends to one state or two, from a row on");
  for (size_t i = 1; i < op.out.size(); ++i) {
    const ir::Tensor& cache = c.graph()[op.out[i]];
    const auto room = cache.shape.size() == 2 ? cache.shape[0].constant() : std::nullopt;
    if (cache.kind != ir::TensorKind::State || cache.dtype != c.out_dtype(0, c.in(0).dtype) ||
        !room || *room < first->hi + count->hi)
      return c.error_attr("append_at",
                          fmt::format("'matmul' can't append rows to '{}'", cache.name));
  }
  const ir::Shape b = c.in(1).shape;
  const auto N = b.size() == 2 ? b[c.flag("transpose_b", false) ? 0 : 1].constant() : std::nullopt;
  const std::vector<Appended> list = appended(c.graph(), op);
  const int64_t vector = functions::matmul_appended_vector(c.out_dtype(0, c.in(0).dtype));
  if (list.front().begin < 0 || list.back().end != N)
    c.error_attr("first_appended", "'matmul' appends its last columns, as many as the states have");
  else if (std::any_of(list.begin(), list.end(), [&](const Appended& a) {
             return a.begin % vector != 0 || a.end % vector != 0;
           }))
    c.error_attr("first_appended", fmt::format("'matmul' appends multiples of {} columns", vector));
}

std::string refuse_cut(const TileContext& c, const Cut& cut) {
  return refuse_part_of_sums(c, cut, "appends to states");
}

ir::Param place(TileContext& c) {
  return c.value("append_at", c.expr("append_at").value_or(ir::Expr(0)));
}

std::vector<ir::Param> params(TileContext& c, int) {
  const std::vector<Appended> list = appended(c.graph(), c.op());
  return {place(c), {"append_begin", list.front().begin}, {"append_next", list.front().end}};
}

// A single cache comes twice.
std::vector<ir::BufferId> results(TileContext& c) {
  const std::vector<Appended> list = appended(c.graph(), c.op());
  return {c.out(list.front().out).buffer, c.out(list.back().out).buffer};
}

// What a task writes to a cache: rows [r0, r1) of the matmul become rows from `at` on.
ir::Access append_access(const Mat& cache, const ir::ValueRef& at, int64_t r0, int64_t r1,
                         int64_t c0, int64_t c1) {
  const int64_t* known = std::get_if<int64_t>(&at.v);
  const int64_t shift = known ? *known : 0;
  ir::Region region = box(cache, r0 + shift, r1 + shift, c0, c1);
  if (!known) region.from = std::get<uint32_t>(at.v);
  return may_write(region);
}

std::function<std::vector<ir::Access>(const MatmulPart&)> writer(TileContext& c, const Mat& y) {
  struct Cache {
    Mat cache;
    int64_t begin, end;
  };
  std::vector<Cache> caches;
  for (const Appended& of : appended(c.graph(), c.op()))
    caches.push_back({c.out(of.out), of.begin, of.end});
  const auto at = std::get<ir::ValueRef>(place(c).value);
  return [=, rows = c.in(0).max_rows](const MatmulPart& part) {
    std::vector<ir::Access> accesses;
    const int64_t own = caches.front().begin;
    if (part.own0 < own)
      accesses.push_back(
          write(rows_of(y, part.block, part.r0, part.r1, part.own0, std::min(part.own1, own))));
    for (const Cache& of : caches)
      if (const int64_t first = std::max(part.n0, of.begin), last = std::min(part.n1, of.end);
          first < last)
        accesses.push_back(append_access(of.cache, at, part.r0, std::min(part.r1, rows),
                                         first - of.begin, last - of.begin));
    return accesses;
  };
}

}  // namespace

MatmulStage append_stage() {
  return {.name = "append",
          .attrs = {{"append_at", AttrType::RuntimeInt, false, "", {}, true},
                    {"first_appended", AttrType::Int, false, "0", {}, true}},
          .more = true,
          .check = check,
          .shape = [](const ir::Graph&, const ir::Op&, MatmulShape& s) { s.tall = true; },
          .refuse_cut = refuse_cut,
          .params = params,
          .results = results,
          .writer = writer};
}

std::string refuse_to_append(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine) {
  MatmulShape appended = matmul_shape(graph, op);
  appended.tall = true;
  return refuse_to_finish(
      matmul_shape(graph, op), appended,
      {.none = "64 rows or more", .others = "of fewer rows, or of a part of what it sums"},
      machine);
}

}  // namespace maco::ops
