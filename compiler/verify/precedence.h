// What has to have ended before a task may start, edge by edge, as the Program's text says.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace maco::verify {

/// A task on a rank in a launch, from 0.
struct Instance {
  uint32_t task = 0;
  int32_t rank = 0;
  int32_t launch = 0;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

/// "matmul 'down' tile 0 (rank 1, launch 2)"; without the rank of a world of one and without
/// launch 0.
std::string describe(const ir::Program& program, Instance instance);

/// Happens-before as a graph. No clocks and no look-ups of the proofs: what is found here is a
/// second opinion on them. Presupposes a synced Program whose structure is right.
class Precedence {
 public:
  enum class Why : uint8_t {
    Stream,  // the next in the stream of a CTA
    Launch,  // a launch of a rank follows the one before
    Event,   // a signal and its wait
    Packet,  // a packet, which shows its own data and nothing else
  };
  struct Edge {
    Instance other;
    Why why = Why::Stream;
    ir::EventId event{};  // Event and Packet
  };

  /// Which packets' edges count. A packet of a tile that may lie beyond a dim's actual value isn't
  /// sure: there may be nothing to poll.
  enum class Packets : uint8_t { None, Sure, All };

  explicit Precedence(const ir::Program& program);

  bool runs(Instance i) const { return (program_.tasks[i.task].ranks >> i.rank) & 1; }
  /// Whether the packets that the task waits for may not be polled.
  bool may_skip(uint32_t task) const { return may_skip_[task]; }
  /// What `i` follows immediately.
  std::vector<Edge> before(Instance i, Packets packets) const;
  /// What follows `i` immediately, in launches before `launches`.
  std::vector<Edge> after(Instance i, int launches, Packets packets) const;

 private:
  struct Arrival {
    uint32_t task;
    ir::RankRef to;
  };
  struct Waiting {
    uint32_t task;
    ir::RankRef from;
    uint32_t lag;
  };
  Why kind(ir::EventId e) const;
  bool counts(ir::EventId e, uint32_t waiter, Packets packets) const;
  bool names(ir::RankRef ref, int rank, int other) const;

  const ir::Program& program_;
  const int world_;
  std::vector<std::vector<ir::TaskId>> streams_;
  std::vector<std::vector<Arrival>> arrivals_;  // by event
  std::vector<std::vector<Waiting>> waiting_;   // by event
  std::vector<bool> may_skip_;                  // by task
};

}  // namespace maco::verify
