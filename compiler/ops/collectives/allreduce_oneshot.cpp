// allreduce, one-shot: every rank puts its tensor into slots of all others, and reduces what
// arrived with its own. One hop; each link carries the tensor once.
#include <fmt/format.h>

#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/push.h"

namespace maco::ops {

namespace {

// The computation that follows a sum before it is rounded and stored, if the op has one.
std::optional<ir::BodyParam> epilogue_of_sum(const TileContext& c) {
  std::string error;
  const auto body = ir::parse_body(c.word("epilogue", ""), error);
  if (!body) return std::nullopt;
  ir::BodyParam epilogue = {*body, {{ir::Spread::Accumulator, ir::DType::F32}}};
  for (size_t i = 1; i < c.op().in.size(); ++i)
    epilogue.operands.push_back({ir::Spread::Full, c.in(static_cast<int>(i)).dtype});
  return epilogue;
}

Cut choose(const TileContext& c) { return choose_exchange(c, c.in(0), c.in(0).rows, 1); }

void tile(TileContext& c) {
  c.promise(ir::CollectiveKind::AllReduce, reduction(c));
  const Mat x = c.in(0), y = c.out(0);
  Exchanger x_to_y(c, boxes_of(c, x, x.rows), x.dtype, y.dtype, in_packets(c));
  functions::Exchange e = x_to_y.base();
  e.reduce = reduction(c);
  const auto combine_tiles = [&](ir::BufferId slots) {
    std::vector<ir::BufferId> operands = {x.buffer, slots, y.buffer};
    const auto epilogue = epilogue_of_sum(c);
    if (!epilogue) return x_to_y.call("combine", e, operands);
    for (size_t i = 1; i < c.op().in.size(); ++i)
      operands.push_back(c.in(static_cast<int>(i)).buffer);
    return x_to_y.call("combine_finished", e, operands, {}, {{"epilogue", *epilogue}});
  };
  if (moves_as_made(c.op())) {
    const Arrivals sent = arrivals(c);
    e.sent = c.program()[sent.slots].dtype;
    const auto combine = combine_tiles(sent.slots);
    for (int64_t t = 0; t < x_to_y.tiles(); ++t)
      c.wait(x_to_y.task(combine, t), sent.arrived[static_cast<size_t>(t)], ir::RankRef::others());
    return;
  }
  const ir::BufferId slots = x_to_y.slots("slots", e, x.dtype);
  const auto put = x_to_y.call("put", e, {x.buffer, slots});
  const auto combine = combine_tiles(slots);
  std::vector<ir::EventId> arrived;
  in_turn(
      x_to_y.tiles(), tiles_ahead(c),
      [&](int64_t t) {
        arrived.push_back(x_to_y.arrival(fmt::format("arrived.{}", t), e.packets));
        c.signal(x_to_y.task(put, t), arrived.back(), ir::RankRef::others());
      },
      [&](int64_t t) {
        c.wait(x_to_y.task(combine, t), arrived[static_cast<size_t>(t)], ir::RankRef::others());
      });
}

cost::Route route(double bytes, int64_t world) {
  return {1, static_cast<double>(world - 1) * bytes};
}

}  // namespace

Algorithm allreduce_oneshot() { return {"allreduce", "oneshot", tile, route, choose}; }

}  // namespace maco::ops
