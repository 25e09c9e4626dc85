// reduce_scatter, ring: the sum of each block goes round from rank 0 to the last rank, and on to
// the rank that owns the block.
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/ring_sums.h"
#include "compiler/ops/collectives/scatter.h"

namespace maco::ops {

namespace {

Cut choose(const TileContext& c) {
  const Mat x = by_blocks(c, c.op().in[0], c.world());
  return choose_exchange(c, x, block_rows(c, x), c.world());
}

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::ReduceScatter, reduction(c));
  const Mat x = by_blocks(c, c.op().in[0], c.world());
  ring_sums(c, x, boxes_of(c, x, block_rows(c, x)), true);
}

// Rank 0 sends its part of all blocks, and the results of blocks that belong neither to it nor to
// the last rank.
cost::Route route(double bytes, int64_t world) {
  const auto n = static_cast<double>(world);
  return {2 * (n - 1), (2 * n - 2) / n * bytes};
}

}  // namespace

Algorithm reduce_scatter_ring() {
  return {"reduce_scatter", "ring", tile, route, choose, ring_is_exact};
}

}  // namespace maco::ops
