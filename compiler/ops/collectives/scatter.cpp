#include "compiler/ops/collectives/scatter.h"

#include <fmt/format.h>

#include "ir/check.h"

namespace maco::ops {

ir::Expr block_rows(const TileContext& context, const Mat& x) {
  // x.rows counts all leading axes.
  const auto rows = ir::divide_exact(x.rows, context.world());
  MACO_CHECK(rows, "checked by infer");
  return *rows;
}

Scattered scatter(TileContext& c, Exchanger& exchanger, const Mat& x) {
  Scattered result;
  result.put = exchanger.base();
  result.put.mode = functions::PeerMode::Each;
  result.put.blocked = true;
  const int64_t tiles = exchanger.tiles();
  result.slots = exchanger.slots("slots", result.put, x.dtype);
  const auto put = exchanger.call("put", result.put, {x.buffer, result.slots});
  for (int64_t t = 0; t < tiles; ++t)
    result.arrived.push_back(exchanger.arrival(fmt::format("arrived.{}", t), result.put.packets));
  for (int64_t t = 0; t < tiles * (c.world() - 1); ++t)
    c.signal(exchanger.task(put, t), result.arrived[static_cast<size_t>(t % tiles)],
             functions::peer_of(result.put, static_cast<uint32_t>(t)));
  return result;
}

}  // namespace maco::ops
