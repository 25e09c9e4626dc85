// alltoall: every rank puts its block p into a slot of rank p, which takes it from there.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/scatter.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) {
  const Mat x = by_blocks(c, c.op().in[0], c.world());
  return choose_exchange(c, x, block_rows(c, x), c.world());
}

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::AllToAll);
  const int64_t world = c.world();
  const Mat x = by_blocks(c, c.op().in[0], world), y = by_blocks(c, c.op().out[0], world);
  Exchanger x_to_y(c, boxes_of(c, x, block_rows(c, x)), x.dtype, y.dtype, in_packets(c));
  const Scattered scattered = scatter(x_to_y, x);
  const auto copy = x_to_y.own_copies(x, y, true, true);
  const int64_t tiles = x_to_y.tiles();
  const auto take = x_to_y.call("take", scattered.put, {scattered.slots, y.buffer});
  in_turn(
      tiles, scattered_ahead(c), [&](int64_t t) { put_tiles(c, x_to_y, scattered, t); },
      [&](int64_t t) {
        x_to_y.task(copy, t);
        for (int64_t i = t; i < tiles * (world - 1); i += tiles)
          c.wait(x_to_y.task(take, i), scattered.arrived[static_cast<size_t>(t)],
                 functions::peer_of(scattered.put, static_cast<uint32_t>(i)));
      });
}

}  // namespace

Algorithm alltoall() { return {"alltoall", "", tile, nullptr, choose}; }

}  // namespace maco::ops
