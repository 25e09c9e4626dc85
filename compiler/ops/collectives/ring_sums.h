// What the reductions round a ring share.
//
// A rank only writes to the next one. The sum of every tile begins at rank 0, and each rank adds
// its own to what it gets, so that sums are in rank order; the last rank has them all. Results go
// on from there, over rank 0, until the ranks that want them have them. Tiles follow each other:
// rank 0 sends the next while the others are at the ones before.
//
// Unfinished sums of floats travel in f32, or are rounded at each hop (ir::ring_rounds); what is
// done travels in the result's type. Where that is the same, one slot does for both: the result of
// a tile comes to a rank behind all that was done with its sum there, by way of the ranks between.
#pragma once

#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

/// Algorithm::exact of these.
bool ring_is_exact(const ir::Graph& graph, const ir::Op& op);

/// The tasks that reduce x to y on all ranks, or, if `scatter`, block r of x on rank r. `boxes`: of
/// x, or of a block of it.
void ring_sums(TileContext& context, const Mat& x, const Boxes& boxes, bool scatter);

}  // namespace maco::ops
