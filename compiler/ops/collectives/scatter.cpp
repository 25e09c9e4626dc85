#include "compiler/ops/collectives/scatter.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/check.h"

namespace maco::ops {

ir::Expr block_rows(const TileContext& context, const Mat& x) {
  // x.rows counts all leading axes.
  const auto rows = ir::divide_exact(x.rows, context.world());
  MACO_CHECK(rows, "checked by infer");
  return *rows;
}

Scattered scatter(Exchanger& exchanger, const Mat& x) {
  Scattered result;
  result.put = exchanger.base();
  result.put.mode = functions::PeerMode::Each;
  result.put.blocked = true;
  const int64_t tiles = exchanger.tiles();
  result.slots = exchanger.slots("slots", result.put, x.dtype);
  result.call = exchanger.call("put", result.put, {x.buffer, result.slots});
  for (int64_t t = 0; t < tiles; ++t)
    result.arrived.push_back(exchanger.arrival(fmt::format("arrived.{}", t), result.put.packets));
  return result;
}

void put_tiles(TileContext& c, Exchanger& exchanger, const Scattered& scattered, int64_t tile) {
  const int64_t tiles = exchanger.tiles();
  for (int64_t i = tile; i < tiles * (c.world() - 1); i += tiles)
    c.signal(exchanger.task(scattered.call, i), scattered.arrived[static_cast<size_t>(tile)],
             functions::peer_of(scattered.put, static_cast<uint32_t>(i)));
}

int64_t scattered_ahead(const TileContext& c) {
  const int64_t others = std::max<int64_t>(1, c.world() - 1);
  return (tiles_ahead(c) + others - 1) / others;
}

}  // namespace maco::ops
