// allreduce, two-shot: tile t belongs to rank t modulo world, which reduces it and sends the result
// to all. Two hops; each link carries two world-th parts of the tensor. A matmul that pushes the
// parts may also do the owner's work, on blocks of rows.
#include <fmt/format.h>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/push.h"

namespace maco::ops {

namespace {

using ir::RankRef;

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1, c.world()); }

// For a matmul that adds up: ranks own blocks of rows, and the sums travel to all ranks in place.
void tile_added(TileContext& c) {
  const Mat x = c.in(0), y = c.out(0);
  const Arrivals sent = arrivals(c);
  Exchanger blocks(c, boxes_of(c, x, ir::Expr(x.max_rows / c.world())), x.dtype, y.dtype, false);
  Sums sums{blocks.base(), sent.slots, {}, sent.arrived, {}};
  sums.exchange.reduce = reduction(c);
  sums.to_all = blocks.slots("sums", sums.exchange, y.dtype);
  for (int64_t t = 0; t < blocks.tiles(); ++t)
    sums.sums_of.push_back(blocks.arrival(fmt::format("sum.{}", t), false));
  add_up(c, sums);
  functions::Exchange arrived = blocks.base();
  arrived.mode = functions::PeerMode::Each;
  arrived.blocked = true;
  const auto take = blocks.call("take", arrived, {sums.to_all, y.buffer});
  for (int64_t t = 0; t < blocks.tiles() * (c.world() - 1); ++t)
    c.wait(blocks.task(take, t), sums.sums_of[static_cast<size_t>(t % blocks.tiles())],
           functions::peer_of(arrived, static_cast<uint32_t>(t)));
}

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::AllReduce, reduction(c));
  if (adds_up(c)) return tile_added(c);
  const Mat x = c.in(0), y = c.out(0);
  const int64_t world = c.world();
  Exchanger x_to_y(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  functions::Exchange to_owner = x_to_y.base();
  to_owner.mode = functions::PeerMode::Owner;
  to_owner.slot_div = world;
  to_owner.reduce = reduction(c);
  to_owner.forward = true;
  functions::Exchange from_owner = x_to_y.base();
  from_owner.mode = functions::PeerMode::Owner;
  from_owner.source_rows = false;
  from_owner.x = y.dtype;
  // The sum travels in packets only if its elements fill packets as x's do.
  from_owner.packets = to_owner.packets && ir::size_of(x.dtype) == ir::size_of(y.dtype);
  to_owner.forward_packets = from_owner.packets;
  // If the matmul pushes the parts, they are on their way already.
  std::optional<Arrivals> sent;
  if (moves_as_made(c.op())) sent = arrivals(c);
  const ir::BufferId parts = sent ? sent->slots : x_to_y.slots("parts", to_owner, x.dtype);
  const ir::BufferId sums = x_to_y.slots("sums", from_owner, y.dtype);
  std::optional<Exchanger::Call> put;
  if (!sent) put = x_to_y.call("put", to_owner, {x.buffer, parts});
  const auto combine = x_to_y.call("combine", to_owner, {x.buffer, parts, y.buffer, sums});
  const auto take = x_to_y.call("take", from_owner, {sums, y.buffer});
  std::vector<ir::EventId> parts_of, sums_of;
  const auto owner_ref = [&](int64_t t) { return RankRef::rank(static_cast<int32_t>(t % world)); };
  const int64_t tiles = x_to_y.tiles(), ahead = std::min(tiles, tiles_ahead(c));
  in_turn(
      tiles + ahead, ahead,
      [&](int64_t t) {
        if (t >= tiles) return;
        parts_of.push_back(sent ? sent->arrived[static_cast<size_t>(t)]
                                : x_to_y.arrival(fmt::format("part.{}", t), to_owner.packets));
        sums_of.push_back(x_to_y.arrival(fmt::format("sum.{}", t), from_owner.packets));
        if (put) c.signal(x_to_y.task(*put, t, all_but(t % world)), parts_of.back(), owner_ref(t));
      },
      [&](int64_t t) {
        if (t < tiles) {
          const ir::TaskId reduce = x_to_y.task(combine, t, only(t % world));
          c.wait(reduce, parts_of[static_cast<size_t>(t)],
                 sent ? RankRef::all() : RankRef::others());
          c.signal(reduce, sums_of[static_cast<size_t>(t)], RankRef::others());
        }
        const int64_t done = t - ahead;
        if (done < 0) return;
        c.wait(x_to_y.task(take, done, all_but(done % world)), sums_of[static_cast<size_t>(done)],
               owner_ref(done));
      });
}

cost::Route route(double bytes, int64_t world) {
  const auto n = static_cast<double>(world);
  return {2, 2 * (n - 1) / n * bytes};
}

}  // namespace

Algorithm allreduce_twoshot() { return {"allreduce", "twoshot", tile, route, choose}; }

}  // namespace maco::ops
