// broadcast: the root puts its tensor into slots of all others, and copies it to its own result.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/one_way.h"

namespace maco::ops {

namespace {

void tile(TileContext& c) {
  const int64_t root = c.integer("root", 0);
  c.promise(ir::CollectiveKind::Broadcast, {}, root);
  const Mat x = c.in(0), y = c.out(0);
  Exchanger x_to_y(c, cut(c, x, x.rows, 1), x.dtype, y.dtype, use_packets(x, 1));
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

}  // namespace

Algorithm broadcast() { return {"broadcast", "", tile}; }

}  // namespace maco::ops
