// What the reductions round a ring share.
//
// A rank writes only to the next one. The sum of every tile begins at rank 0, and each rank adds
// its own tile to what it gets, so that sums are in rank order; the last rank has the whole sums.
// From there results go on, over rank 0, until all ranks that want them have them. Tiles follow
// each other: rank 0 sends the next tile while other ranks work on the tiles before it.
//
// Unfinished sums of floats travel in f32, or are rounded at each hop (ir::ring_rounds); results
// travel in the result's type. If both types are the same, one slot does for both: a tile's result
// comes to a rank only after all work on its sum there, because it went through the ranks in
// between.
#pragma once

#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

/// Algorithm::exact of the ring algorithms.
bool ring_is_exact(const ir::Graph& graph, const ir::Op& op);

/// Makes the tasks that reduce x to y on all ranks or, if `scatter`, block r of x on rank r.
/// `boxes`: the boxes of x, or of a block of it.
void ring_sums(TileContext& context, const Mat& x, const Boxes& boxes, bool scatter);

}  // namespace maco::ops
