// Which sends of a graph meet which receives: the n-th send of a (source, destination, tag) meets
// the n-th receive of the same, in definition order.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// A message from ranks of a send to ranks of a receive that are equally far from them.
struct Message {
  ir::OpId send{}, recv{};
  int64_t shift = 0;       // from a sender to its receiver, modulo the world: 0 to world - 1
  uint64_t senders = 0;    // one bit for each rank
  uint64_t receivers = 0;  // likewise
};

/// All messages of a graph.
class Messages {
 public:
  /// Matches sends and receives. Reports, by op and rank, ends that meet nobody, ranks that don't
  /// exist, and ends whose shapes or dtypes differ. The graph's shapes must be inferred.
  static Messages match(const ir::Graph& graph, ir::Diagnostics& diagnostics);

  /// In the order of their receives, then of their sends.
  const std::vector<Message>& all() const { return all_; }
  /// The messages of a send, or of a receive.
  std::vector<const Message*> of_op(ir::OpId op) const;

  /// The channel of a receive's tiles, whichever end is cut into tasks first: its slots, and for
  /// each tile the events that it has arrived and that it was read.
  struct Channel {
    ir::BufferId slots{};
    uint32_t copies = 1;  // of the slots; launches use them in turn
    std::vector<ir::EventId> arrived, read;
  };
  std::optional<Channel>& channel(ir::OpId recv) { return ends_[index(recv)].channel; }
  /// A temporary in which a rank keeps a part of a state that it sends to itself, as the state may
  /// change before the receive.
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
