#include "compiler/ops/collectives/one_way.h"

#include <fmt/format.h>

namespace maco::ops {

void send_one_way(TileContext& c, Exchanger& exchanger, OneWay way) {
  const Mat x = c.in(0), y = c.out(0);
  way.put.source_rows = way.take.source_rows = false;
  const ir::BufferId slots = exchanger.slots("slots", way.put, x.dtype);
  const auto copies = static_cast<uint32_t>(c.program()[slots].rotation);
  const auto put = exchanger.call("put", way.put, {x.buffer, slots});
  const auto take = exchanger.call("take", way.take, {slots, y.buffer});
  for (int64_t t = 0; t < exchanger.tiles(); ++t) {
    const ir::EventId arrived = exchanger.arrival(fmt::format("arrived.{}", t), way.put.packets);
    const ir::EventId acknowledged = c.event(fmt::format("read.{}", t), ir::EventKind::Peer);
    const ir::TaskId sender = exchanger.task(put, t, way.writers);
    c.wait(sender, acknowledged, way.to, copies);
    c.signal(sender, arrived, way.to);
    const ir::TaskId receiver = exchanger.task(take, t, way.readers);
    c.wait(receiver, arrived, way.source);
    c.signal(receiver, acknowledged, way.source);
  }
}

}  // namespace maco::ops
