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

/// Happens-before as a graph. It uses no clocks and no tables of the proofs, so that what it says
/// is a second opinion on them. Presupposes a synced Program whose structure is right.
class Precedence {
 public:
  enum class Why : uint8_t {
    Stream,  // the next in the stream of a CTA
    Launch,  // a launch of a rank follows the one before
    Event,   // a signal, a release, and the wait for it, an acquire
    Packet,  // a packet, which shows its own data and nothing else
    Hint,    // a hint, which shows nothing
  };
  struct Edge {
    Instance other;
    Why why = Why::Stream;
    ir::EventId event{};  // Event and Packet
  };

  /// Which packets' edges count: none; those of tasks that surely poll; hints', too, which keep a
  /// task waiting and show nothing; all. A task whose tile may lie beyond a dim's actual value may
  /// have nothing to poll.
  enum class Packets : uint8_t { None, Sure, SureAndHints, All };

  explicit Precedence(const ir::Program& program);

  bool runs(Instance i) const { return (program_.tasks[i.task].ranks >> i.rank) & 1; }
  /// Whether the task may poll none of the packets that it waits for.
  bool may_skip(uint32_t task) const { return may_skip_[task]; }
  /// The edges into `i`.
  std::vector<Edge> before(Instance i, Packets packets) const;
  /// The edges out of `i`, to launches before `launches`.
  std::vector<Edge> after(Instance i, int launches, Packets packets) const;

 private:
  struct Signaller {
    uint32_t task;
    ir::RankRef to;
  };
  struct Waiter {
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
  std::vector<std::vector<Signaller>> signallers_;  // by event
  std::vector<std::vector<Waiter>> waiters_;        // by event
  std::vector<bool> may_skip_;                      // by task
};

}  // namespace maco::verify
