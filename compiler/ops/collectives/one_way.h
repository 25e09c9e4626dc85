// What broadcast, ring_shift, send and recv share: data flows one way.
#pragma once

#include <optional>
#include <string>

#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/messages.h"

namespace maco::ops {

using Channel = Messages::Channel;
/// Makes a channel for tiles that travel as `way` says, named after the context's op. Readers
/// acknowledge. A writer waits for the acknowledgement of the last launch that used the same copy
/// of the slots. `prefix`: of the channel's names, where an op has several channels.
Channel make_channel(TileContext& context, Exchanger& exchanger, const functions::Exchange& way,
                     ir::DType dtype, const std::string& prefix = "");
/// Makes the task on ranks `ranks` that puts a tile into slots of ranks `to`.
void put_tile(TileContext& context, Exchanger& exchanger, const Exchanger::Call& put, int64_t tile,
              const Channel& channel, ir::RankRef to, uint64_t ranks);
/// Makes the task on ranks `ranks` that takes a tile that came from rank `source`.
void take_tile(TileContext& context, Exchanger& exchanger, const Exchanger::Call& take,
               int64_t tile, const Channel& channel, ir::RankRef source, uint64_t ranks);

/// From ranks `writers`, which name their readers `to`, to ranks `readers`, which name the writer
/// `source`. The modes of `put` and `take` say the same.
struct OneWay {
  functions::Exchange put, take;
  ir::RankRef to{}, source{};
  uint64_t writers = ~uint64_t{0}, readers = ~uint64_t{0};
};
void send_one_way(TileContext& context, Exchanger& exchanger, OneWay way);

}  // namespace maco::ops
