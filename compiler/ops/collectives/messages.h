// Which sends of a graph meet which receives: the n-th send of a (source, destination, tag) meets
// the n-th receive of it, in definition order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// What ranks of a send send to ranks of a receive that are equally far from them.
struct Message {
  ir::OpId send{}, recv{};
  int64_t shift = 0;       // from a sender to its receiver, modulo the world: 0 to world - 1
  uint64_t senders = 0;    // a bit a rank
  uint64_t receivers = 0;  // likewise
};

/// All messages of a graph.
class Messages {
 public:
  /// Reports, by op and rank, ends that meet nobody, ranks that don't exist, and ends of other
  /// shapes or dtypes. Presupposes a graph whose shapes are inferred.
  static Messages match(const ir::Graph& graph, ir::Diagnostics& diagnostics);

  /// In the order of their receives, then of their sends.
  const std::vector<Message>& all() const { return all_; }
  /// Those of a send, or of a receive.
  std::vector<const Message*> of_op(ir::OpId op) const;

  /// What a receive's tiles travel by, whichever end is cut into tasks first: its slots, and by
  /// tile the events that tell of their arrival and that they were read.
  struct Channel {
    ir::BufferId slots{};
    uint32_t copies = 1;  // of the slots, which launches use in turn
    std::vector<ir::EventId> arrived, read;
  };
  std::optional<Channel>& channel(ir::OpId recv) { return ends_[index(recv)].channel; }
  /// A place of a rank's own, for what it sends to itself of a state, which may change before it is
  /// received.
  std::optional<ir::BufferId>& kept(ir::OpId recv) { return ends_[index(recv)].kept; }
  /// Forgets what belongs to a Program.
  void begin_program();

 private:
  struct Ends {  // of an op
    std::vector<uint32_t> messages;
    std::optional<Channel> channel;
    std::optional<ir::BufferId> kept;
  };
  std::vector<Message> all_;
  std::vector<Ends> ends_;  // by op
};

}  // namespace maco::ops
