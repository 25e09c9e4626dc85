// Shapes and attributes of the collectives. Their algorithms are a file each (algorithms.h).
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/by_rows.h"
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/families.h"
#include "compiler/ops/op.h"

namespace maco::ops {

namespace {

using ir::DType;
using ir::Expr;

bool check_reduce(InferContext& c) {
  const std::string reduce = c.word("reduce", "sum");
  if (reduce == "avg" && !ir::is_float(c.in(0).dtype)) {
    c.error_attr("reduce",
                 fmt::format("'avg' of {} is not defined: use 'sum'", ir::name(c.in(0).dtype)));
    return false;
  }
  return true;
}

DType same_kind_out(InferContext& c) {
  const DType in = c.in(0).dtype, out = c.out_dtype(0, in);
  if (!same_class(in, out))
    c.error(fmt::format("'{}' does not convert {} to {}: insert a 'cast'", c.op().kind,
                        ir::name(in), ir::name(out)));
  return out;
}

void infer_same(InferContext& c) { c.set_out(0, same_kind_out(c), c.in(0).shape); }
// Checks a sum with the epilogue that the rule `sum` of `fuse` gave it; people edit its text.
void infer_finished(InferContext& c) {
  std::string error;
  const auto body = ir::parse_body(c.word("epilogue", ""), error);
  if (!body) return c.error_attr("epilogue", "'epilogue': " + error);
  std::vector<DType> types = {DType::F32};
  for (int i = 0; i < c.inputs(); ++i) {
    if (!ir::is_float(c.in(i).dtype) || c.in(i).shape != c.in(0).shape)
      c.error_in(i, "'epilogue' of 'allreduce' takes floats of the sum's shape");
    if (i > 0) types.push_back(c.in(i).dtype);
  }
  if (!moves_as_made(c.op()) || c.word("algorithm", "auto") != "oneshot")
    c.error_attr("epilogue",
                 "'epilogue' of 'allreduce' is for algorithm 'oneshot' of what a product sends");
  if (const std::string why = ir::check_body(*body, types); !why.empty())
    c.error_attr("epilogue", "'epilogue': " + why);
  const DType out = c.out_dtype(0, body->dtype());
  if (out != body->dtype())
    c.error_attr("epilogue", fmt::format("'epilogue' gives {}, but the op {}",
                                         ir::name(body->dtype()), ir::name(out)));
  c.set_out(0, out, c.in(0).shape);
}
void infer_allreduce(InferContext& c) {
  if (c.has("epilogue")) {
    if (check_reduce(c)) infer_finished(c);
  } else if (check_reduce(c)) {
    infer_same(c);
  }
  check_as_made(c);
}
void infer_allgather(InferContext& c) {
  ir::Shape s = c.in(0).shape;
  s[0] = Expr(c.graph().world) * s[0];
  c.set_out(0, same_kind_out(c), s);
}

// Cuts x's first axis into `world` equal blocks. Returns the rows of a block, or reports an error.
std::optional<Expr> block_rows(InferContext& c) {
  const Expr rows = ir::canonical(c.extent(0, 0));
  if (auto n = ir::divide_exact(rows, c.graph().world)) return n;
  c.error_in(
      0, fmt::format("'{}' cuts axis 0 of {} into {} equal blocks, but {} is not a multiple of {}",
                     c.op().kind, describe(c.graph(), c.op().in[0]), c.graph().world, rows.str(),
                     c.graph().world));
  return std::nullopt;
}
void infer_reduce_scatter(InferContext& c) {
  check_as_made(c);
  if (!check_reduce(c)) return;
  if (auto n = block_rows(c)) {
    ir::Shape s = c.in(0).shape;
    s[0] = *n;
    c.set_out(0, same_kind_out(c), s);
  }
}
void infer_alltoall(InferContext& c) {
  if (block_rows(c)) infer_same(c);
}
void infer_broadcast(InferContext& c) {
  const int64_t root = c.integer("root", 0);
  if (root < 0 || root >= c.graph().world)
    c.error_attr("root",
                 fmt::format("'root' is {}, but ranks are 0 to {}", root, c.graph().world - 1));
  infer_same(c);
}
void infer_ring_shift(InferContext& c) {
  c.integer("by", 1);
  infer_same(c);
}
void infer_barrier(InferContext&) {}
// Which ranks meet must be known when compiling.
void check_ranks(InferContext& c, const char* peer) {
  for (const char* attr : {peer, "tag", "if"})
    if (const auto e = c.expr(attr))
      for (const std::string& name : e->vars())
        if (name != "rank")
          c.error_attr(attr, fmt::format("'{}' can't stand in '{}' of '{}': which ranks meet is "
                                         "the same in every launch",
                                         name, attr, c.op().kind));
}
void infer_send(InferContext& c) { check_ranks(c, "dst"); }
// Without a `shape` the result has that of the declared output.
void infer_recv(InferContext& c) {
  check_ranks(c, "src");
  const ir::Tensor& out = c.graph()[c.op().out[0]];
  ir::Shape shape = c.has("shape") ? c.list("shape") : out.shape;
  if (shape.empty()) {
    c.error("'recv' needs 'shape': it has no input to take one from");
    return;
  }
  if (!c.op().dtype && out.kind == ir::TensorKind::Temp) {
    c.error("'recv' needs 'dtype': it has no input to take one from");
    return;
  }
  c.set_out(0, c.out_dtype(0, DType::F32), shape);
}

std::string refuse_cut(const TileContext& c, const Cut& cut) {
  if (moves_as_made(c.op())) {
    const Cut product = cut_as_made(c);
    if (cut != product)
      return fmt::format("the product that sends its tiles has those of {} x {}", product.tile[0],
                         product.tile[1]);
    if (c.op().kind == "reduce_scatter" && c.out(0).max_rows % cut.tile[0] != 0)
      return fmt::format("tiles of {} rows lie in two of its blocks", cut.tile[0]);
  }
  constexpr int64_t most = int64_t{1} << 20;
  if (cut.tile[0] <= most && cut.tile[1] <= most / cut.tile[0]) return "";
  return fmt::format("a tile has at most {} elements, not {} x {}", most, cut.tile[0], cut.tile[1]);
}

std::string no_rows(const ir::Graph&, const ir::Op&, const std::vector<bool>&) {
  return "it has no rows";
}
std::string blocks_of_rows(const ir::Graph&, const ir::Op&, const std::vector<bool>&) {
  return "its rows are blocks of all ranks";
}

AttrSpec reduce_attr() {
  return {"reduce", AttrType::Word, false, "sum", {"sum", "max", "min", "avg"}, false};
}

// Set by the rule `sum` of `fuse`.
AttrSpec epilogue_attr() { return {"epilogue", AttrType::Word, false, "", {}, true}; }

// Set by the rule `send` of `fuse`.

// The words include those of the format that no op implements yet; such a word is refused by name.
// words_of adds registered algorithms.
AttrSpec algorithm_attr() {
  return {
      "algorithm", AttrType::Word, false, "auto", {"auto", "oneshot", "twoshot", "ring", "nccl"},
      false};
}

// For an op with only one algorithm of MACO's.
AttrSpec own_algorithm_attr() {
  return {"algorithm", AttrType::Word, false, "auto", {"auto"}, false};
}

}  // namespace

std::vector<OpDef> collective_ops() {
  std::vector<OpDef> ops;
  const auto add = [&](std::string kind, std::string summary, std::vector<AttrSpec> attrs,
                       void (*infer)(InferContext&), void (*tile)(TileContext&)) {
    OpDef d;
    d.kind = std::move(kind);
    d.summary = std::move(summary);
    d.attrs = std::move(attrs);
    d.collective = true;
    d.infer = infer;
    d.tile = tile;
    const std::vector<Algorithm> ways = algorithms_of(d.kind);
    if (std::any_of(ways.begin(), ways.end(), [](const Algorithm& a) { return a.choose; })) {
      d.methods = {"packets", "stores"};
      d.tile_axes = {"rows", "columns"};
      d.choose = choose_by_algorithm;
      d.refuse_cut = refuse_cut;
    }
    ops.push_back(std::move(d));
  };
  add("allreduce", "the reduction over all ranks, on every rank",
      {reduce_attr(), algorithm_attr(), as_made_attr(), epilogue_attr()}, infer_allreduce,
      tile_by_algorithm);
  add("allgather", "all ranks' blocks, in rank order", {algorithm_attr()}, infer_allgather,
      tile_by_algorithm);
  add("reduce_scatter", "rank r gets block r of the reduction",
      {reduce_attr(), algorithm_attr(), as_made_attr()}, infer_reduce_scatter, tile_by_algorithm);
  add("alltoall", "block i of rank r goes to block r of rank i", {own_algorithm_attr()},
      infer_alltoall, tile_by_algorithm);
  add("broadcast", "the root's tensor, on every rank",
      {{"root", AttrType::Int, true, "", {}, false}, own_algorithm_attr()}, infer_broadcast,
      tile_by_algorithm);
  add("ring_shift", "the tensor of rank - by", {{"by", AttrType::Int, false, "1", {}, false}},
      infer_ring_shift, tile_by_algorithm);
  const AttrSpec tag{"tag", AttrType::Int, false, "0", {}, false},
      who{"if", AttrType::Int, false, "1", {}, false};
  add("send", "the n-th send of a (source, destination, tag) meets the n-th recv of it",
      {{"dst", AttrType::Int, true, "", {}, false}, tag, who}, infer_send, tile_by_algorithm);
  ops.back().message = MessageEnd::Send;
  ops.back().min_out = ops.back().max_out = 0;
  add("recv", "what the matching send sent; zero on ranks that don't take part",
      {{"src", AttrType::Int, true, "", {}, false},
       {"shape", AttrType::IntList, false, "the declared one", {}, false},
       tag,
       who},
      infer_recv, tile_by_algorithm);
  ops.back().message = MessageEnd::Receive;
  ops.back().min_in = ops.back().max_in = 0;
  add("barrier", "all earlier ops have ended on all ranks before a later op starts on any", {},
      infer_barrier, tile_by_algorithm);
  ops.back().barrier = true;
  ops.back().min_in = ops.back().max_in = ops.back().min_out = ops.back().max_out = 0;
  for (OpDef& op : ops)
    op.refuse_stage =
        op.barrier ? no_rows
        : op.kind == "allgather" || op.kind == "reduce_scatter" || op.kind == "alltoall"
            ? blocks_of_rows
            : by_rows;
  return ops;
}

}  // namespace maco::ops
