// What reduce_scatter and alltoall begin with.
#pragma once

#include <vector>

#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

/// Block p of x, of as many blocks as there are ranks, is put into a slot of rank p. Returns for
/// each tile of a block the event of its arrival.
struct Scattered {
  ir::BufferId slots;
  functions::Exchange put;
  std::vector<ir::EventId> arrived;
};
Scattered scatter(TileContext& context, Exchanger& exchanger, const Mat& x);
/// The rows of a block of x.
ir::Expr block_rows(const TileContext& context, const Mat& x);

}  // namespace maco::ops
