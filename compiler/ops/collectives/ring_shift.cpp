// ring_shift: every rank puts its tensor into a slot of rank + by.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/one_way.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1); }

void tile(TileContext& c) {
  const int64_t world = c.world();
  const int64_t by = ((c.integer("by", 1) % world) + world) % world;
  c.promise(ir::CollectiveKind::RingShift, {}, by);
  const Mat x = c.in(0), y = c.out(0);
  Exchanger x_to_y(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  if (by == 0) return x_to_y.copy_own(x, y, false, false);
  OneWay way{.put = x_to_y.base(), .take = x_to_y.base()};
  way.put.mode = way.take.mode = functions::PeerMode::Shift;
  way.put.peer = by;
  way.take.peer = world - by;
  way.to = ir::RankRef::shift(static_cast<int32_t>(by));
  way.source = ir::RankRef::shift(static_cast<int32_t>(world - by));
  send_one_way(c, x_to_y, way);
}

}  // namespace

Algorithm ring_shift() { return {"ring_shift", "", tile, nullptr, choose}; }

}  // namespace maco::ops
