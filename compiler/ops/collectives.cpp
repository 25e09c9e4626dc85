// allreduce, allgather, reduce_scatter, alltoall, broadcast, ring_shift, barrier.
//
// Slots are used by every second launch (rotation 2). Where every two ranks that exchange slots
// wait for each other in each launch, a rank that begins launch e + 2 knows that its peers have
// ended launch e, so that nothing else need protect a slot. Where data flows one way only
// (broadcast, ring_shift) the reader acknowledges, and the writer waits for the acknowledgement of
// two launches ago.
#include "compiler/ops/collectives.h"

#include <fmt/format.h>

#include "compiler/ops/families.h"
#include "ir/check.h"

namespace maco::ops {

namespace {

using ir::DType;
using ir::EventKind;
using ir::Expr;
using ir::Param;
using ir::RankRef;
using ir::Role;

// How a device function finds the peer of a tile (collectives.cuh has the same numbers).
enum PeerMode : int64_t { kOthers = 0, kByBlock = 1, kOwner = 2, kFixed = 3, kShift = 4 };

struct Route {
  PeerMode mode = kOthers;
  int64_t peer = 0;          // Fixed: the rank; Shift: by
  bool blocked = false;      // the local tensor's block is that of the peer: rows begin at peer * n
  bool own_blocked = false;  // combine: the own block is that of the rank
  int64_t slot_div = 1;      // tile t lies at t / slot_div in its slot
  bool source_rows = true;   // a slot row for each source rank, else one
};

bool use_packets(const Mat& m, int64_t blocks) {
  return m.max_elements() / blocks * ir::size_of(m.dtype) <= kPacketBytes;
}

std::vector<Param> geometry(TileContext& c, const Boxes& b, const Route& r, bool packets) {
  return {{"W", c.world()},
          {"T", b.count()},
          {"cols", b.cols},
          {"BR", b.BR},
          {"BC", b.BC},
          {"across", b.across},
          {"stride", b.stride},
          c.value("rows", b.rows),
          {"mode", static_cast<int64_t>(r.mode)},
          {"peer", r.peer},
          {"blocked", r.blocked},
          {"own_blocked", r.own_blocked},
          {"slot_div", r.slot_div},
          {"source_rows", r.source_rows},
          {"packets", packets}};
}

std::vector<Param> operator+(std::vector<Param> params, Param p) {
  params.push_back(std::move(p));
  return params;
}

// Tile `t`'s place in slot row [row, row + n) of a slot buffer, on the ranks `where`.
ir::Region slot_region(const ir::Program& p, ir::BufferId slot, const Boxes& b, const Route& r,
                       int64_t t, int64_t row, int64_t n, RankRef where) {
  ir::Region g;
  g.buffer = slot;
  g.pitch = p[slot].cols;
  g.r0 = row;
  g.r1 = row + n;
  g.c0 = t / r.slot_div * b.stride;
  g.c1 = g.c0 + b.stride;
  g.where = where;
  return g;
}

// The region that a put from this rank writes: the row of its rank, or the only one.
ir::Region put_region(const ir::Program& p, ir::BufferId slot, const Boxes& b, const Route& r,
                      int64_t t, RankRef where) {
  ir::Region g = slot_region(p, slot, b, r, t, 0, 1, where);
  if (r.source_rows) g.block = {.rows = 1};
  return g;
}

uint64_t only(int64_t rank) { return uint64_t{1} << rank; }
uint64_t all_but(int64_t rank) { return ~only(rank); }

ir::BufferId slots(TileContext& c, std::string name, DType dtype, const Boxes& b, const Route& r,
                   bool packets) {
  const int64_t tiles = (b.count() + r.slot_div - 1) / r.slot_div;
  return c.buffer(std::move(name), ir::BufferKind::Slot, dtype, r.source_rows ? c.world() : 1,
                  tiles * b.stride, 2, packets);
}

EventKind kind_of(bool packets) { return packets ? EventKind::Packet : EventKind::Peer; }

ir::Reduction reduction(TileContext& c) {
  const std::string word = c.word("reduce", "sum");
  for (const auto r : {ir::Reduction::Avg, ir::Reduction::Max, ir::Reduction::Min})
    if (word == name(r)) return r;
  return ir::Reduction::Sum;
}
// As collectives.cuh numbers them.
Param reduce_param(TileContext& c) { return {"reduce", static_cast<int64_t>(reduction(c))}; }

// --- allreduce ---------------------------------------------------------------

void tile_oneshot(TileContext& c) {
  const Mat x = c.in(0), y = c.out(0);
  const Boxes b = cut(c, x, x.rows, 1);
  const bool packets = use_packets(x, 1);
  const Route route;
  const ir::BufferId slot = slots(c, "slots", x.dtype, b, route, packets);
  const auto base = geometry(c, b, route, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype};
  const ir::CallId put = c.call("put", base, {x.buffer, slot});
  const ir::CallId combine = c.call(
      "combine", base + reduce_param(c) + Param{"forward", false} + Param{"forward_packets", false},
      {x.buffer, slot, y.buffer});
  for (int64_t t = 0; t < b.count(); ++t) {
    const auto tile = static_cast<uint32_t>(t);
    const ir::EventId arrived = c.event(fmt::format("arrived.{}", t), kind_of(packets));
    const ir::TaskId p =
        c.task(put, tile,
               {read(box_of(x, b, t)),
                may_write(put_region(c.program(), slot, b, route, t, RankRef::others()))},
               Role::Comm);
    c.signal(p, arrived, RankRef::others());
    const ir::TaskId k =
        c.task(combine, tile,
               {read(box_of(x, b, t)),
                read(slot_region(c.program(), slot, b, route, t, 0, c.world(), RankRef::self())),
                write(box_of(y, b, t))},
               Role::Comm);
    c.wait(k, arrived, RankRef::others());
  }
}

// Tile t belongs to rank t mod world, which reduces it and sends the result to everybody.
void tile_twoshot(TileContext& c) {
  const Mat x = c.in(0), y = c.out(0);
  const Boxes b = cut(c, x, x.rows, 1);
  const bool packets = use_packets(x, c.world());
  const int64_t world = c.world();
  Route to_owner;
  to_owner.mode = kOwner;
  to_owner.slot_div = world;
  Route from_owner;
  from_owner.mode = kOwner;
  from_owner.source_rows = false;
  // The sum travels in packets only if its elements fill them as those of x do.
  const bool sum_packets = packets && ir::size_of(x.dtype) == ir::size_of(y.dtype);
  const ir::BufferId parts = slots(c, "parts", x.dtype, b, to_owner, packets);
  const ir::BufferId sums = slots(c, "sums", y.dtype, b, from_owner, sum_packets);
  const auto base = geometry(c, b, to_owner, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype};
  const ir::CallId put = c.call("put", base, {x.buffer, parts});
  const ir::CallId combine = c.call(
      "combine",
      base + reduce_param(c) + Param{"forward", true} + Param{"forward_packets", sum_packets},
      {x.buffer, parts, y.buffer, sums});
  const ir::CallId take = c.call("take",
                                 geometry(c, b, from_owner, sum_packets) + Param{"X", y.dtype} +
                                     Param{"Y", y.dtype} + Param{"own", false},
                                 {sums, y.buffer});
  for (int64_t t = 0; t < b.count(); ++t) {
    const auto tile = static_cast<uint32_t>(t);
    const int64_t owner = t % world;
    const auto owner_ref = RankRef::rank(static_cast<int32_t>(owner));
    const ir::EventId part = c.event(fmt::format("part.{}", t), kind_of(packets));
    const ir::EventId sum = c.event(fmt::format("sum.{}", t), kind_of(sum_packets));
    const ir::TaskId p =
        c.task(put, tile,
               {read(box_of(x, b, t)),
                may_write(put_region(c.program(), parts, b, to_owner, t, owner_ref))},
               Role::Comm, all_but(owner));
    c.signal(p, part, owner_ref);
    const ir::TaskId k =
        c.task(combine, tile,
               {read(box_of(x, b, t)),
                read(slot_region(c.program(), parts, b, to_owner, t, 0, world, RankRef::self())),
                write(box_of(y, b, t)),
                may_write(put_region(c.program(), sums, b, from_owner, t, RankRef::others()))},
               Role::Comm, only(owner));
    c.wait(k, part, RankRef::others());
    c.signal(k, sum, RankRef::others());
    const ir::TaskId g =
        c.task(take, tile,
               {read(slot_region(c.program(), sums, b, from_owner, t, 0, 1, RankRef::self())),
                write(box_of(y, b, t))},
               Role::Comm, all_but(owner));
    c.wait(g, sum, owner_ref);
  }
}

void tile_allreduce_oneshot(TileContext& c) {
  c.promise(ir::CollectiveKind::AllReduce, reduction(c));
  tile_oneshot(c);
}
void tile_allreduce_twoshot(TileContext& c) {
  c.promise(ir::CollectiveKind::AllReduce, reduction(c));
  tile_twoshot(c);
}

// --- the others --------------------------------------------------------------

// A copy of block `own` of x to y on this rank, tile by tile, in the order of the device's `take`.
void tile_own_copy(TileContext& c, const Mat& x, const Mat& y, const Boxes& b, Route route,
                   bool from_block, bool to_block, uint64_t ranks) {
  route.mode = kFixed;
  route.blocked = to_block;
  route.own_blocked = from_block;
  const ir::CallId copy = c.call(
      "take",
      geometry(c, b, route, false) + Param{"X", x.dtype} + Param{"Y", y.dtype} + Param{"own", true},
      {x.buffer, y.buffer});
  for (int64_t t = 0; t < b.count(); ++t) {
    const ir::Region from = from_block ? own_box_of(c, x, b, t) : box_of(x, b, t);
    const ir::Region to = to_block ? own_box_of(c, y, b, t) : box_of(y, b, t);
    const bool moving = to_block && moves(b);
    c.task(copy, static_cast<uint32_t>(t), {read(from), moving ? may_write(to) : write(to)},
           Role::Comm, ranks);
  }
}

void tile_allgather(TileContext& c) {
  c.promise(ir::CollectiveKind::AllGather);
  const int64_t world = c.world();
  const Mat x = c.in(0), y = by_blocks(c, c.op().out[0], world);
  const Boxes b = cut(c, x, x.rows, 1);
  const bool packets = use_packets(x, 1);
  const Route out;
  Route in;
  in.mode = kByBlock;
  in.blocked = true;
  const ir::BufferId slot = slots(c, "slots", x.dtype, b, out, packets);
  const ir::CallId put =
      c.call("put", geometry(c, b, out, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype},
             {x.buffer, slot});
  const ir::CallId take = c.call(
      "take",
      geometry(c, b, in, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype} + Param{"own", false},
      {slot, y.buffer});
  std::vector<ir::EventId> arrived;
  for (int64_t t = 0; t < b.count(); ++t) {
    arrived.push_back(c.event(fmt::format("arrived.{}", t), kind_of(packets)));
    const ir::TaskId p =
        c.task(put, static_cast<uint32_t>(t),
               {read(box_of(x, b, t)),
                may_write(put_region(c.program(), slot, b, out, t, RankRef::others()))},
               Role::Comm);
    c.signal(p, arrived.back(), RankRef::others());
  }
  tile_own_copy(c, x, y, b, out, false, true, ~uint64_t{0});
  for (int64_t s = 0; s < world; ++s)
    for (int64_t t = 0; t < b.count(); ++t) {
      const ir::Region to = box_of(y, b, t, s);
      const ir::TaskId g =
          c.task(take, static_cast<uint32_t>(s * b.count() + t),
                 {read(slot_region(c.program(), slot, b, in, t, s, 1, RankRef::self())),
                  moves(b) ? may_write(to) : write(to)},
                 Role::Comm, all_but(s));
      c.wait(g, arrived[static_cast<size_t>(t)], RankRef::rank(static_cast<int32_t>(s)));
    }
}

// reduce_scatter and alltoall: block p of x goes to rank p.
void tile_scatter(TileContext& c, bool reduce) {
  const int64_t world = c.world();
  const Mat x = by_blocks(c, c.op().in[0], world),
            y = reduce ? c.out(0) : by_blocks(c, c.op().out[0], world);
  // Rows of a block.
  // (x.rows counts all leading axes.)
  const auto part = ir::divide_exact(x.rows, world);
  MACO_CHECK(part, "checked by infer");
  const Expr n = *part;
  const Boxes b = cut(c, x, n, world);
  const bool packets = use_packets(x, 1);
  Route out;
  out.mode = kByBlock;
  out.blocked = true;
  const ir::BufferId slot = slots(c, "slots", x.dtype, b, out, packets);
  const ir::CallId put =
      c.call("put", geometry(c, b, out, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype},
             {x.buffer, slot});
  std::vector<ir::EventId> arrived;
  for (int64_t t = 0; t < b.count(); ++t)
    arrived.push_back(c.event(fmt::format("arrived.{}", t), kind_of(packets)));
  for (int64_t p = 0; p < world; ++p)
    for (int64_t t = 0; t < b.count(); ++t) {
      const auto to = RankRef::rank(static_cast<int32_t>(p));
      const ir::TaskId k = c.task(
          put, static_cast<uint32_t>(p * b.count() + t),
          {read(box_of(x, b, t, p)), may_write(put_region(c.program(), slot, b, out, t, to))},
          Role::Comm, all_but(p));
      c.signal(k, arrived[static_cast<size_t>(t)], to);
    }
  if (reduce) {
    Route in;
    in.own_blocked = true;
    const ir::CallId combine =
        c.call("combine",
               geometry(c, b, in, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype} +
                   reduce_param(c) + Param{"forward", false} + Param{"forward_packets", false},
               {x.buffer, slot, y.buffer});
    for (int64_t t = 0; t < b.count(); ++t) {
      const ir::TaskId k =
          c.task(combine, static_cast<uint32_t>(t),
                 {read(own_box_of(c, x, b, t)),
                  read(slot_region(c.program(), slot, b, in, t, 0, world, RankRef::self())),
                  write(box_of(y, b, t))},
                 Role::Comm);
      c.wait(k, arrived[static_cast<size_t>(t)], RankRef::others());
    }
    return;
  }
  tile_own_copy(c, x, y, b, Route{}, true, true, ~uint64_t{0});
  const ir::CallId take = c.call("take",
                                 geometry(c, b, out, packets) + Param{"X", x.dtype} +
                                     Param{"Y", y.dtype} + Param{"own", false},
                                 {slot, y.buffer});
  for (int64_t s = 0; s < world; ++s)
    for (int64_t t = 0; t < b.count(); ++t) {
      const ir::Region to = box_of(y, b, t, s);
      const ir::TaskId g =
          c.task(take, static_cast<uint32_t>(s * b.count() + t),
                 {read(slot_region(c.program(), slot, b, out, t, s, 1, RankRef::self())),
                  moves(b) ? may_write(to) : write(to)},
                 Role::Comm, all_but(s));
      c.wait(g, arrived[static_cast<size_t>(t)], RankRef::rank(static_cast<int32_t>(s)));
    }
}
void tile_reduce_scatter(TileContext& c) {
  c.promise(ir::CollectiveKind::ReduceScatter, reduction(c));
  tile_scatter(c, true);
}
void tile_alltoall(TileContext& c) {
  c.promise(ir::CollectiveKind::AllToAll);
  tile_scatter(c, false);
}

// Data that flows one way: from `source` (as the reader names it) to `to` (as the writer does).
// Readers acknowledge.
void tile_one_way(TileContext& c, Route put_route, Route take_route, RankRef to, RankRef source,
                  uint64_t writers, uint64_t readers) {
  const Mat x = c.in(0), y = c.out(0);
  const Boxes b = cut(c, x, x.rows, 1);
  const bool packets = use_packets(x, 1);
  put_route.source_rows = take_route.source_rows = false;
  const ir::BufferId slot = slots(c, "slots", x.dtype, b, put_route, packets);
  const auto types = [&](Route r) {
    return geometry(c, b, r, packets) + Param{"X", x.dtype} + Param{"Y", y.dtype};
  };
  const ir::CallId put = c.call("put", types(put_route), {x.buffer, slot});
  const ir::CallId take = c.call("take", types(take_route) + Param{"own", false}, {slot, y.buffer});
  for (int64_t t = 0; t < b.count(); ++t) {
    const auto tile = static_cast<uint32_t>(t);
    const ir::EventId arrived = c.event(fmt::format("arrived.{}", t), kind_of(packets));
    const ir::EventId read_ack = c.event(fmt::format("read.{}", t), EventKind::Peer);
    const ir::TaskId p = c.task(
        put, tile,
        {read(box_of(x, b, t)), may_write(put_region(c.program(), slot, b, put_route, t, to))},
        Role::Comm, writers);
    c.wait(p, read_ack, to, static_cast<uint32_t>(c.program()[slot].rotation));
    c.signal(p, arrived, to);
    const ir::TaskId g =
        c.task(take, tile,
               {read(slot_region(c.program(), slot, b, take_route, t, 0, 1, RankRef::self())),
                write(box_of(y, b, t))},
               Role::Comm, readers);
    c.wait(g, arrived, source);
    c.signal(g, read_ack, source);
  }
}

void tile_broadcast(TileContext& c) {
  const int64_t root = c.integer("root", 0);
  c.promise(ir::CollectiveKind::Broadcast, {}, root);
  Route in;
  in.mode = kFixed;
  in.peer = root;
  const auto root_ref = RankRef::rank(static_cast<int32_t>(root));
  tile_one_way(c, Route{}, in, RankRef::others(), root_ref, only(root), all_but(root));
  const Mat x = c.in(0);
  tile_own_copy(c, x, c.out(0), cut(c, x, x.rows, 1), Route{}, false, false, only(root));
}

void tile_ring_shift(TileContext& c) {
  const int64_t world = c.world();
  const int64_t by = ((c.integer("by", 1) % world) + world) % world;
  c.promise(ir::CollectiveKind::RingShift, {}, by);
  if (by == 0) {
    const Mat x = c.in(0);
    tile_own_copy(c, x, c.out(0), cut(c, x, x.rows, 1), Route{}, false, false, ~uint64_t{0});
    return;
  }
  Route out, in;
  out.mode = in.mode = kShift;
  out.peer = by;
  in.peer = world - by;
  tile_one_way(c, out, in, RankRef::shift(static_cast<int32_t>(by)),
               RankRef::shift(static_cast<int32_t>(world - by)), ~uint64_t{0}, ~uint64_t{0});
}

// Two tasks: one tells the others, one hears from them. What stands before and after is the tile
// pass's (Task::after).
void tile_barrier(TileContext& c) {
  c.promise(ir::CollectiveKind::Barrier);
  const ir::EventId met = c.event("met", EventKind::Peer);
  const ir::TaskId tell = c.task(c.call("nothing", {}, {}), 0, {}, Role::Comm);
  c.signal(tell, met, RankRef::others());
  const ir::TaskId hear = c.task(c.call("nothing", {}, {}), 0, {}, Role::Comm);
  c.wait(hear, met, RankRef::others());
}

// --- shapes ------------------------------------------------------------------

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
void infer_allreduce(InferContext& c) {
  if (check_reduce(c)) infer_same(c);
}
void infer_allgather(InferContext& c) {
  ir::Shape s = c.in(0).shape;
  s[0] = Expr(c.graph().world) * s[0];
  c.set_out(0, same_kind_out(c), s);
}

// x's first axis as `world` equal blocks: its n, or an error.
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
void infer_send(InferContext&) {}
// Without a `shape` the declared output's.
void infer_recv(InferContext& c) {
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

AttrSpec reduce_attr() {
  return {"reduce", AttrType::Word, false, "sum", {"sum", "max", "min", "avg"}, false};
}

// The algorithms that can be compiled: for which op, by which word, by which tile rule.
struct Algorithm {
  std::string_view op, word;
  void (*tile)(TileContext&);
};
constexpr Algorithm kAlgorithms[] = {
    {"allreduce", "oneshot", tile_allreduce_oneshot},
    {"allreduce", "twoshot", tile_allreduce_twoshot},
    {"allgather", "oneshot", tile_allgather},
    {"reduce_scatter", "oneshot", tile_reduce_scatter},
};

void tile_by_algorithm(TileContext& c) {
  const std::string word = c.word("algorithm", "auto");
  for (const Algorithm& a : kAlgorithms)
    if (a.op == c.op().kind && a.word == word) return a.tile(c);
  MACO_CHECK(false, word);
}
// Also the words of the format that no op has yet; they are refused by name.
AttrSpec algorithm_attr() {
  return {
      "algorithm", AttrType::Word, false, "auto", {"auto", "oneshot", "twoshot", "ring", "nccl"},
      false};
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
    for (const Algorithm& a : kAlgorithms)
      if (a.op == d.kind) d.algorithms.emplace_back(a.word);
    ops.push_back(std::move(d));
  };
  add("allreduce", "the reduction over all ranks, on every rank", {reduce_attr(), algorithm_attr()},
      infer_allreduce, tile_by_algorithm);
  add("allgather", "all ranks' blocks, in rank order", {algorithm_attr()}, infer_allgather,
      tile_by_algorithm);
  add("reduce_scatter", "rank r gets block r of the reduction", {reduce_attr(), algorithm_attr()},
      infer_reduce_scatter, tile_by_algorithm);
  add("alltoall", "block i of rank r goes to block r of rank i", {}, infer_alltoall, tile_alltoall);
  add("broadcast", "the root's tensor, on every rank",
      {{"root", AttrType::Int, true, "", {}, false}}, infer_broadcast, tile_broadcast);
  add("ring_shift", "the tensor of rank - by", {{"by", AttrType::Int, false, "1", {}, false}},
      infer_ring_shift, tile_ring_shift);
  // Known, checked and refused by name (check_support.cpp): they have no tile rule yet.
  const AttrSpec tag{"tag", AttrType::Int, false, "0", {}, false},
      who{"if", AttrType::Int, false, "1", {}, false};
  add("send", "the n-th send of a (source, destination, tag) meets the n-th recv of it",
      {{"dst", AttrType::Int, true, "", {}, false}, tag, who}, infer_send, nullptr);
  ops.back().min_out = ops.back().max_out = 0;
  add("recv", "what the matching send sent; zero on ranks that don't take part",
      {{"src", AttrType::Int, true, "", {}, false},
       {"shape", AttrType::IntList, false, "the declared one", {}, false},
       tag,
       who},
      infer_recv, nullptr);
  ops.back().min_in = ops.back().max_in = 0;
  add("barrier", "all earlier ops have ended on all ranks before a later op starts on any", {},
      infer_barrier, tile_barrier);
  ops.back().min_in = ops.back().max_in = ops.back().min_out = ops.back().max_out = 0;
  return ops;
}

}  // namespace maco::ops
