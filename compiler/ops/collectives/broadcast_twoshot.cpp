// broadcast, two-shot: tiles go to the other ranks in turn, each tile to one rank, which sends it
// on to all others. Two hops: the root sends the tensor once, and each other rank sends as much on.
// The root takes its result from what comes back.
#include <fmt/format.h>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/one_way.h"

namespace maco::ops {

namespace {

using ir::RankRef;

Cut choose(const TileContext& c) {
  return choose_exchange(c, c.in(0), c.in(0).rows, 1, c.world() - 1);
}

void tile(TileContext& c) {
  const int64_t root = c.integer("root", 0), others = c.world() - 1;
  c.promise(ir::CollectiveKind::Broadcast, {}, root);
  const Mat x = c.in(0), y = c.out(0);
  Exchanger x_to_y(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  const int64_t tiles = x_to_y.tiles(), ahead = std::min(tiles, tiles_ahead(c));
  const auto owner_of = [&](int64_t t) { return (root + 1 + t % others) % c.world(); };
  functions::Exchange to_owner = x_to_y.base();
  to_owner.mode = functions::PeerMode::Fixed;
  to_owner.slot_div = others;
  to_owner.source_rows = false;
  functions::Exchange from_owner = x_to_y.base();
  from_owner.source_rows = false;
  from_owner.x = from_owner.sent = y.dtype;
  // What is sent on travels in packets only if its elements fill packets as x's do.
  from_owner.packets = to_owner.packets && ir::size_of(x.dtype) == ir::size_of(y.dtype);
  c.room_for(4 * tiles);
  const Channel parts = make_channel(c, x_to_y, to_owner, x.dtype, "part");
  const Channel wholes = make_channel(c, x_to_y, from_owner, y.dtype, "whole");

  to_owner.peer = root;
  const auto keep = x_to_y.call("take", to_owner, {parts.slots, y.buffer});
  const auto send_on = x_to_y.call("put", from_owner, {y.buffer, wholes.slots});
  // The calls to and from each owner, in the order of their first tiles.
  std::vector<Exchanger::Call> give, take;
  from_owner.mode = functions::PeerMode::Fixed;
  for (int64_t t = 0; t < std::min(others, tiles); ++t) {
    const int64_t own = (tiles - t + others - 1) / others;
    to_owner.peer = from_owner.peer = owner_of(t);
    give.push_back(x_to_y.call("put", to_owner, {x.buffer, parts.slots}, own));
    take.push_back(x_to_y.call("take", from_owner, {wholes.slots, y.buffer}, own));
  }
  const auto rank = [](int64_t r) { return RankRef::rank(static_cast<int32_t>(r)); };
  in_turn(
      tiles + ahead, ahead,
      [&](int64_t t) {
        if (t >= tiles) return;
        put_tile(c, x_to_y, give[static_cast<size_t>(t % others)], t, parts, rank(owner_of(t)),
                 only(root));
      },
      [&](int64_t t) {
        if (t < tiles) {
          take_tile(c, x_to_y, keep, t, parts, rank(root), only(owner_of(t)));
          put_tile(c, x_to_y, send_on, t, wholes, RankRef::others(), only(owner_of(t)));
        }
        const int64_t done = t - ahead;
        if (done < 0) return;
        take_tile(c, x_to_y, take[static_cast<size_t>(done % others)], done, wholes,
                  rank(owner_of(done)), all_but(owner_of(done)));
      });
}

// The route covers the root's links, and what each other rank sends on. A tile takes two tasks more
// than with one-shot, which cost as much as kMore hops: on four GPUs both algorithms take as long
// at some 3 MB (docs/benchmarks/communication.md).
cost::Route route(double bytes, int64_t) {
  constexpr double kMore = 12;
  return {2 + kMore, bytes};
}

}  // namespace

Algorithm broadcast_twoshot() { return {"broadcast", "twoshot", tile, route, choose}; }

}  // namespace maco::ops
