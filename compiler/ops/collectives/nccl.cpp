// nccl: the collective leaves the kernel (functions/hand_over.h). Each rank has two tasks, one
// right behind the other on the SM that all handed-over collectives share: the library runs one
// collective after the other, in that order.
#include <algorithm>

#include "compiler/functions/hand_over.h"
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/scatter.h"

namespace maco::ops {

namespace {

using functions::HandOver;
using ir::CollectiveKind;
using ir::RankRef;

int64_t handed_over(const ir::Program& p) {
  int64_t most = -1;
  for (const ir::Call& call : p.calls)
    if (const auto h = functions::hand_over_of(call)) most = std::max(most, h->number);
  return most + 1;
}

// Copies x to y, which has its shape but may have another type. No tile has rows of two blocks of
// `block`.
void copy(TileContext& c, const Mat& x, const Mat& y, int64_t block) {
  constexpr int64_t kCols = 2048, kElements = 8192;
  Boxes b;
  b.rows = ir::canonical(x.rows);
  b.max_rows = x.max_rows;
  b.cols = x.cols;
  b.BC = std::min(x.cols, kCols);
  b.BR = std::clamp<int64_t>(kElements / b.BC, 1, block);
  while (block % b.BR != 0) --b.BR;
  b.across = tiles_of(x.cols, b.BC);
  b.down = tiles_of(x.max_rows, b.BR);
  Exchanger(c, b, x.dtype, y.dtype, false).copy_own(x, y, false, false);
}

// From x to y, which have one type. They, or a block of each, have h.rows rows of h.cols elements.
void hand_over(TileContext& c, HandOver h, ir::BufferId x, ir::BufferId y, int64_t max_rows) {
  h.world = c.world();
  h.number = handed_over(c.program());
  h.x = c.program()[x].dtype;
  const ir::BufferId wires =
      c.buffer("wires", ir::BufferKind::Slot, h.x, h.world, max_rows * h.cols, 2, true);
  std::vector<ir::BufferId> operands = {x, wires, y};
  if (h.meets())
    operands.push_back(c.buffer("met", ir::BufferKind::Slot, ir::DType::U8, h.world, 1, 2, true));
  for (size_t i = 1; i < operands.size(); i += 2) c.program()[operands[i]].wire = true;
  const ir::EventId arrived = c.event("arrived", ir::EventKind::Packet);
  const auto tasks = [&](uint64_t ranks) {
    const auto task = [&](const char* function) {
      const ir::CallId id = c.call(function, functions::params_of(h), operands);
      c.moves(id, functions::transfers_of(function, h));
      return c.task(id, 0, functions::accesses_of(c.program(), c.program()[id], h), ir::Role::Comm,
                    ranks);
    };
    c.signal(task("hand_over"), arrived, RankRef::others());
    c.wait(task("take_back"), arrived, RankRef::others());
  };
  const bool of_root = h.kind == CollectiveKind::Broadcast;
  c.announce(of_root ? 4 : 2);
  h.root = of_root;
  tasks(of_root ? only(h.peer) : ~uint64_t{0});
  h.root = false;
  if (of_root) tasks(all_but(h.peer));
}

// The type in which data travels between tensors of different types: the one with more bits; for
// sums of floats f32, so that they are rounded once.
ir::DType travels(const HandOver& h, ir::DType x, ir::DType y) {
  const bool sums = h.kind == CollectiveKind::AllReduce || h.kind == CollectiveKind::ReduceScatter;
  const bool adds = h.reduce == ir::Reduction::Sum || h.reduce == ir::Reduction::Avg;
  if (x != y && sums && adds && ir::is_float(x)) return ir::DType::F32;
  return ir::size_of(x) <= ir::size_of(y) ? y : x;
}

// From the op's operand to its result, of which a block has up to `rows` rows. A library converts
// nothing, so that tasks convert before and after.
void hand_over(TileContext& c, const HandOver& h, int64_t rows) {
  const auto seen = [&](ir::TensorId tensor, bool blocks) {
    return blocks ? by_blocks(c, tensor, c.world()) : c.mat(tensor);
  };
  const Mat x = seen(c.op().in[0], h.x_blocks()), y = seen(c.op().out[0], h.y_blocks());
  const ir::DType via = travels(h, x.dtype, y.dtype);
  const auto like = [&](const Mat& m, const char* name) {
    if (m.dtype == via) return m;
    Mat other = m;
    other.dtype = via;
    other.buffer = c.rows_buffer(name, via, m.rows, m.max_rows, m.cols);
    return other;
  };
  const auto apart = [&](const Mat& m, bool blocks) {
    return m.dtype != via && blocks && m.dynamic();
  };
  if (apart(x, h.x_blocks()) || apart(y, h.y_blocks()))
    return c.error(
        "NCCL converts nothing: where dims say how many rows a block has, the result of '" +
        c.op().kind + "' must have its operand's dtype");
  const Mat given = like(x, "given"), got = like(y, "got");
  if (x.dtype != via) copy(c, x, given, h.x_blocks() ? rows : x.max_rows);
  hand_over(c, h, given.buffer, got.buffer, rows);
  if (y.dtype != via) copy(c, got, y, h.y_blocks() ? rows : y.max_rows);
}

// Collectives whose tensors have no blocks.
void of_all(TileContext& c, HandOver h) {
  c.promise(h.kind, h.reduce, h.peer);
  const Mat x = c.in(0);
  h.rows = std::get<ir::ValueRef>(c.value("rows", x.rows).value);
  h.cols = x.cols;
  hand_over(c, h, x.max_rows);
}

void allreduce(TileContext& c) {
  of_all(c, {.kind = CollectiveKind::AllReduce, .reduce = reduction(c)});
}
void broadcast_by_nccl(TileContext& c) {
  of_all(c, {.kind = CollectiveKind::Broadcast, .peer = c.integer("root", 0)});
}
void ring_shift_by_nccl(TileContext& c) {
  const int64_t world = c.world(), by = ((c.integer("by", 1) % world) + world) % world;
  if (by == 0) {  // sent to oneself
    c.promise(CollectiveKind::RingShift);
    return copy(c, c.in(0), c.out(0), c.in(0).max_rows);
  }
  of_all(c, {.kind = CollectiveKind::RingShift, .peer = by});
}

// `of`: the tensor with a block for each rank.
void of_blocks(TileContext& c, HandOver h, const Mat& of) {
  c.promise(h.kind, h.reduce);
  const ir::Expr rows = block_rows(c, of);
  h.rows = std::get<ir::ValueRef>(c.value("rows", rows).value);
  h.cols = of.cols;
  hand_over(c, h, c.range(ir::canonical(rows)).hi);
}
void allgather(TileContext& c) {
  of_blocks(c, {.kind = CollectiveKind::AllGather}, by_blocks(c, c.op().out[0], c.world()));
}
void reduce_scatter(TileContext& c) {
  of_blocks(c, {.kind = CollectiveKind::ReduceScatter, .reduce = reduction(c)},
            by_blocks(c, c.op().in[0], c.world()));
}
void alltoall_by_nccl(TileContext& c) {
  of_blocks(c, {.kind = CollectiveKind::AllToAll}, by_blocks(c, c.op().in[0], c.world()));
}

// The library has no barrier, but ranks have met when they have a sum.
void barrier_by_nccl(TileContext& c) {
  c.promise(CollectiveKind::Barrier);
  const auto word = [&](const char* name) {
    return c.buffer(name, ir::BufferKind::Temp, ir::DType::I32, 1, 1);
  };
  const ir::BufferId told = word("told"), heard = word("heard");
  Boxes one;
  one.rows = ir::Expr(1);
  Exchanger e(c, one, ir::DType::I32, ir::DType::I32, false);
  e.task(e.call("clear", e.base(), {told}), 0);
  HandOver h{.kind = CollectiveKind::AllReduce};
  h.rows = ir::ValueRef{int64_t{1}};
  hand_over(c, h, told, heard, 1);
}

Algorithm algorithm(const char* op, void (*tile)(TileContext&)) { return {op, "nccl", tile}; }

}  // namespace

Algorithm allreduce_nccl() { return algorithm("allreduce", allreduce); }
Algorithm allgather_nccl() { return algorithm("allgather", allgather); }
Algorithm reduce_scatter_nccl() { return algorithm("reduce_scatter", reduce_scatter); }
Algorithm alltoall_nccl() { return algorithm("alltoall", alltoall_by_nccl); }
Algorithm broadcast_nccl() { return algorithm("broadcast", broadcast_by_nccl); }
Algorithm ring_shift_nccl() { return algorithm("ring_shift", ring_shift_by_nccl); }
Algorithm barrier_nccl() { return algorithm("barrier", barrier_by_nccl); }

}  // namespace maco::ops
