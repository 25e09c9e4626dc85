// allgather, one-shot: every rank puts its block into slots of all others, which take it from
// there.
#include <fmt/format.h>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1); }

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::AllGather);
  const int64_t world = c.world();
  const Mat x = c.in(0), y = by_blocks(c, c.op().out[0], world);
  Exchanger x_to_y(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  const functions::Exchange out = x_to_y.base();
  functions::Exchange in = out;
  in.mode = functions::PeerMode::Each;
  in.blocked = true;
  const int64_t tiles = x_to_y.tiles();
  const ir::BufferId slots = x_to_y.slots("slots", out, x.dtype);
  const auto put = x_to_y.call("put", out, {x.buffer, slots});
  const auto take = x_to_y.call("take", in, {slots, y.buffer});
  const auto copy = x_to_y.own_copies(x, y, false, true);
  std::vector<ir::EventId> arrived;
  in_turn(
      tiles, tiles_ahead(c),
      [&](int64_t t) {
        arrived.push_back(x_to_y.arrival(fmt::format("arrived.{}", t), out.packets));
        c.signal(x_to_y.task(put, t), arrived.back(), ir::RankRef::others());
      },
      [&](int64_t t) {
        x_to_y.task(copy, t);
        for (int64_t i = t; i < tiles * (world - 1); i += tiles)
          c.wait(x_to_y.task(take, i), arrived[static_cast<size_t>(t)],
                 functions::peer_of(in, static_cast<uint32_t>(i)));
      });
}

cost::Route route(double bytes, int64_t world) {
  return {1, static_cast<double>(world - 1) * bytes};
}

}  // namespace

Algorithm allgather_oneshot() { return {"allgather", "oneshot", tile, route, choose}; }

}  // namespace maco::ops
