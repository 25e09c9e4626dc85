// What broadcast, ring_shift, send and recv share: data that flows one way.
#pragma once

#include <optional>
#include <string>

#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/messages.h"

namespace maco::ops {

using Channel = Messages::Channel;
/// A channel for tiles that travel as `way` says, named after the context's op. Readers
/// acknowledge, and writers wait for the acknowledgement of the launch that used the same copy of
/// the slots before. `prefix`: of its names, where an op has several.
Channel make_channel(TileContext& context, Exchanger& exchanger, const functions::Exchange& way,
                     ir::DType dtype, const std::string& prefix = "");
/// The task that puts a tile into slots of ranks `to`, on `ranks`.
void put_tile(TileContext& context, Exchanger& exchanger, const Exchanger::Call& put, int64_t tile,
              const Channel& channel, ir::RankRef to, uint64_t ranks);
/// The task that takes a tile that came from rank `source`, on `ranks`.
void take_tile(TileContext& context, Exchanger& exchanger, const Exchanger::Call& take,
               int64_t tile, const Channel& channel, ir::RankRef source, uint64_t ranks);

/// From ranks `writers`, which name their readers `to`, to ranks `readers`, which name where it
/// comes from `source`; the modes of `put` and `take` say the same.
struct OneWay {
  functions::Exchange put, take;
  ir::RankRef to{}, source{};
  uint64_t writers = ~uint64_t{0}, readers = ~uint64_t{0};
};
void send_one_way(TileContext& context, Exchanger& exchanger, OneWay way);

}  // namespace maco::ops
