// allreduce, ring: the sum of each tile goes round from rank 0 to the last rank, then the result
// goes round.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/ring_sums.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1); }

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::AllReduce, reduction(c));
  const Mat x = c.in(0);
  ring_sums(c, x, boxes_of(c, x, x.rows), false);
}

// Between two ranks the sum takes one direction of the link and the result the other.
cost::Route route(double bytes, int64_t world) {
  return {2 * static_cast<double>(world - 1), world > 2 ? 2 * bytes : bytes};
}

}  // namespace

Algorithm allreduce_ring() { return {"allreduce", "ring", tile, route, choose, ring_is_exact}; }

}  // namespace maco::ops
