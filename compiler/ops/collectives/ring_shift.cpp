// ring_shift: every rank puts its tensor into a slot of rank + by.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/one_way.h"

namespace maco::ops {

namespace {

void tile(TileContext& c) {
  const int64_t world = c.world();
  const int64_t by = ((c.integer("by", 1) % world) + world) % world;
  c.promise(ir::CollectiveKind::RingShift, {}, by);
  const Mat x = c.in(0), y = c.out(0);
  Exchanger x_to_y(c, cut(c, x, x.rows, 1), x.dtype, y.dtype, use_packets(x, 1));
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

Algorithm ring_shift() { return {"ring_shift", "", tile}; }

}  // namespace maco::ops
