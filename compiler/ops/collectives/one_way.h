// What broadcast and ring_shift share: data that flows one way.
#pragma once

#include "compiler/ops/collectives/exchange_tasks.h"

namespace maco::ops {

/// From ranks `writers`, which name their readers `to`, to ranks `readers`, which name where it
/// comes from `source`; the modes of `put` and `take` say the same. Readers acknowledge, and
/// writers wait for the acknowledgement of the launch that used the same copy of the slots before.
struct OneWay {
  functions::Exchange put, take;
  ir::RankRef to{}, source{};
  uint64_t writers = ~uint64_t{0}, readers = ~uint64_t{0};
};
void send_one_way(TileContext& context, Exchanger& exchanger, OneWay way);

}  // namespace maco::ops
