// What reduce_scatter and alltoall have in common: their first step.
#pragma once

#include <vector>

#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

/// x has a block for each rank; block p is put into a slot of rank p.
struct Scattered {
  ir::BufferId slots{};
  functions::Exchange put;
  Exchanger::Call call{};
  std::vector<ir::EventId> arrived;  // by tile of a block
};
Scattered scatter(Exchanger& exchanger, const Mat& x);
/// Makes the tasks that put tile `tile` of all blocks.
void put_tiles(TileContext& context, Exchanger& exchanger, const Scattered& scattered,
               int64_t tile);
/// tiles_ahead, counted over the tiles of all blocks.
int64_t scattered_ahead(const TileContext& context);
/// The rows of a block of x.
ir::Expr block_rows(const TileContext& context, const Mat& x);

}  // namespace maco::ops
