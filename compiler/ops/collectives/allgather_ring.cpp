// allgather, ring: every rank passes on the block that it received last, until all blocks have been
// everywhere.
//
// A tile stays in a slot until its rank has taken it and passed it on. Slots for two blocks are
// enough: what came two hops ago has been read, or the writer waits for its place. Packets are
// small and have a place each, since the packets of one launch can't be told apart.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

namespace {

using ir::RankRef;

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1); }

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::AllGather);
  const int64_t world = c.world(), hops = world - 1;
  const Mat x = c.in(0), y = by_blocks(c, c.op().out[0], world);
  Exchanger ring(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  if (world == 1) return ring.copy_own(x, y, false, true);
  const int64_t tiles = ring.tiles();

  // Tile t of the block of rank + 1 + i has index i * tiles + t. h hops bring the block of rank -
  // h.
  functions::Exchange base = ring.base();
  base.mode = functions::PeerMode::Each;
  base.blocked = true;
  base.source_rows = false;
  base.in = base.out = x.dtype;
  base.places = base.packets ? hops : std::min<int64_t>(2, hops);
  base.keep = true;
  const ir::BufferId slots = c.buffer("slots", ir::BufferKind::Slot, x.dtype, 1,
                                      base.places * tiles * base.stride, 2, base.packets);
  const auto call = [&](bool own, bool pass, int64_t tasks) {
    functions::Exchange e = base;
    e.own = own;
    e.arrived = !own;
    e.pass = pass;
    return ring.call("hop", e, {x.buffer, slots, y.buffer, slots}, tasks);
  };
  const Exchanger::Call first = call(true, true, tiles);
  const std::optional<Exchanger::Call> relay =
      hops > 1 ? std::optional(call(false, true, (hops - 1) * tiles)) : std::nullopt;
  const Exchanger::Call last = call(false, false, tiles);

  const RankRef next = RankRef::shift(1), before = RankRef::shift(static_cast<int32_t>(hops));
  // For each hop and tile: the event that it has arrived by that hop, and that it has been read
  // there.
  std::vector<ir::EventId> arrived(static_cast<size_t>(hops * tiles)), read = arrived;
  const auto at = [&](int64_t hop, int64_t t) {
    return static_cast<size_t>((hop - 1) * tiles + t);
  };
  const auto make = [&](int64_t hop, int64_t t) {
    const auto& what = hop == 0 ? first : hop < hops ? *relay : last;
    const ir::TaskId task = ring.task(what, (hops - hop) * tiles + t);
    if (hop > 0) {
      c.wait(task, arrived[at(hop, t)], before);
      // Another tile will take its place.
      if (hop + base.places <= hops) {
        read[at(hop, t)] = c.event(fmt::format("read.{}.{}", hop, t), ir::EventKind::Peer);
        c.signal(task, read[at(hop, t)], before);
      }
    }
    if (hop == hops) return;
    const int64_t place_of = hop + 1 - base.places;  // the last hop that used this place
    if (place_of > 0) c.wait(task, read[at(place_of, t)], next);
    auto& event = arrived[at(hop + 1, t)];
    event = ring.arrival(fmt::format("arrived.{}.{}", hop + 1, t), base.packets);
    c.signal(task, event, next);
  };
  // The tiles of a hop follow each other; a tile's next hop comes `ahead` tiles later.
  const int64_t ahead = std::min(tiles, tiles_ahead(c));
  for (int64_t i = 0; i < tiles + hops * ahead; ++i)
    for (int64_t hop = 0; hop <= hops; ++hop)
      if (const int64_t t = i - hop * ahead; t >= 0 && t < tiles) make(hop, t);
}

cost::Route route(double bytes, int64_t world) {
  const auto hops = static_cast<double>(world - 1);
  return {hops, hops * bytes};
}

}  // namespace

Algorithm allgather_ring() { return {"allgather", "ring", tile, route, choose}; }

}  // namespace maco::ops
