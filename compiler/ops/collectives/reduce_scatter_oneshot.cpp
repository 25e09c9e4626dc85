// reduce_scatter, one-shot: block p of every rank goes to rank p, which reduces these blocks with
// its own.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/collectives/scatter.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) {
  const Mat x = by_blocks(c, c.op().in[0], c.world());
  return choose_exchange(c, x, block_rows(c, x), c.world());
}

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::ReduceScatter, reduction(c));
  const Mat x = by_blocks(c, c.op().in[0], c.world()), y = c.out(0);
  Exchanger x_to_y(c, boxes_of(c, x, block_rows(c, x)), x.dtype, y.dtype, in_packets(c));
  functions::Exchange e = x_to_y.base();
  e.own_blocked = true;
  e.reduce = reduction(c);
  if (moves_as_made(c.op())) {
    const Arrivals sent = arrivals(c);
    const auto combine = x_to_y.call("combine", e, {x.buffer, sent.slots, y.buffer});
    for (int64_t t = 0; t < x_to_y.tiles(); ++t)
      c.wait(x_to_y.task(combine, t), sent.arrived[static_cast<size_t>(t)], ir::RankRef::all());
    return;
  }
  const Scattered scattered = scatter(x_to_y, x);
  const auto combine = x_to_y.call("combine", e, {x.buffer, scattered.slots, y.buffer});
  in_turn(
      x_to_y.tiles(), scattered_ahead(c), [&](int64_t t) { put_tiles(c, x_to_y, scattered, t); },
      [&](int64_t t) {
        c.wait(x_to_y.task(combine, t), scattered.arrived[static_cast<size_t>(t)],
               ir::RankRef::others());
      });
}

cost::Route route(double bytes, int64_t world) {
  const auto n = static_cast<double>(world);
  return {1, (n - 1) / n * bytes};
}

}  // namespace

Algorithm reduce_scatter_oneshot() { return {"reduce_scatter", "oneshot", tile, route, choose}; }

}  // namespace maco::ops
