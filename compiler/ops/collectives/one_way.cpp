#include "compiler/ops/collectives/one_way.h"

#include <fmt/format.h>

namespace maco::ops {

Channel make_channel(TileContext& c, Exchanger& exchanger, const functions::Exchange& way,
                     ir::DType dtype, const std::string& prefix) {
  Channel channel;
  const auto named = [&](const char* what) { return prefix.empty() ? what : prefix + "." + what; };
  channel.slots = exchanger.slots(named("slots"), way, dtype);
  channel.copies = static_cast<uint32_t>(c.program()[channel.slots].rotation);
  for (int64_t t = 0; t < exchanger.tiles(); ++t) {
    channel.arrived.push_back(
        exchanger.arrival(fmt::format("{}.{}", named("arrived"), t), way.packets));
    channel.read.push_back(c.event(fmt::format("{}.{}", named("read"), t), ir::EventKind::Peer));
  }
  return channel;
}

void put_tile(TileContext& c, Exchanger& exchanger, const Exchanger::Call& put, int64_t tile,
              const Channel& channel, ir::RankRef to, uint64_t ranks) {
  const auto t = static_cast<size_t>(tile);
  const ir::TaskId sender = exchanger.task(put, tile, ranks);
  c.wait(sender, channel.read[t], to, channel.copies);
  c.signal(sender, channel.arrived[t], to);
}

void take_tile(TileContext& c, Exchanger& exchanger, const Exchanger::Call& take, int64_t tile,
               const Channel& channel, ir::RankRef source, uint64_t ranks) {
  const auto t = static_cast<size_t>(tile);
  const ir::TaskId receiver = exchanger.task(take, tile, ranks);
  c.wait(receiver, channel.arrived[t], source);
  c.signal(receiver, channel.read[t], source);
}

void send_one_way(TileContext& c, Exchanger& exchanger, OneWay way) {
  const Mat x = c.in(0), y = c.out(0);
  way.put.source_rows = way.take.source_rows = false;
  c.room_for(2 * exchanger.tiles());
  const Channel channel = make_channel(c, exchanger, way.put, x.dtype);
  const auto put = exchanger.call("put", way.put, {x.buffer, channel.slots});
  const auto take = exchanger.call("take", way.take, {channel.slots, y.buffer});
  in_turn(
      exchanger.tiles(), tiles_ahead(c),
      [&](int64_t t) { put_tile(c, exchanger, put, t, channel, way.to, way.writers); },
      [&](int64_t t) { take_tile(c, exchanger, take, t, channel, way.source, way.readers); });
}

}  // namespace maco::ops
