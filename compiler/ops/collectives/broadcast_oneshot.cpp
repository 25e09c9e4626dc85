// broadcast, one-shot: the root puts its tensor into slots of all others, and copies it to its own
// result. One hop; the root's links carry the tensor once for each other rank.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/one_way.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1); }

void tile(TileContext& c) {
  const int64_t root = c.integer("root", 0);
  c.promise(ir::CollectiveKind::Broadcast, {}, root);
  const Mat x = c.in(0), y = c.out(0);
  Exchanger x_to_y(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  OneWay way{.put = x_to_y.base(), .take = x_to_y.base()};
  way.take.mode = functions::PeerMode::Fixed;
  way.take.peer = root;
  way.to = ir::RankRef::others();
  way.source = ir::RankRef::rank(static_cast<int32_t>(root));
  way.writers = only(root);
  way.readers = all_but(root);
  send_one_way(c, x_to_y, way);
  x_to_y.copy_own(x, y, false, false, only(root));
}

cost::Route route(double bytes, int64_t world) {
  return {1, static_cast<double>(world - 1) * bytes};
}

}  // namespace

Algorithm broadcast_oneshot() { return {"broadcast", "oneshot", tile, route, choose}; }

}  // namespace maco::ops
