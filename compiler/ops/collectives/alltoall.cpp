// alltoall: block p of every rank goes to a slot of rank p, which takes it from there.
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
  const Scattered scattered = scatter(c, x_to_y, x);
  x_to_y.copy_own(x, y, true, true);
  const int64_t tiles = x_to_y.tiles();
  const auto take = x_to_y.call("take", scattered.put, {scattered.slots, y.buffer});
  for (int64_t t = 0; t < tiles * (world - 1); ++t)
    c.wait(x_to_y.task(take, t), scattered.arrived[static_cast<size_t>(t % tiles)],
           functions::peer_of(scattered.put, static_cast<uint32_t>(t)));
}

}  // namespace

Algorithm alltoall() { return {"alltoall", "", tile, nullptr, choose}; }

}  // namespace maco::ops
