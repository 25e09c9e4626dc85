// A synced Program as the proofs see it: streams, and who signals whom.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace maco::verify {

/// Whether `ref`, used on `rank`, names `other`.
bool names(ir::RankRef ref, int rank, int other, int world);

/// Lists one after another: list i is items[begin[i] .. begin[i + 1]).
template <class T>
struct Lists {
  std::vector<uint32_t> begin;
  std::vector<T> items;
  struct Range {
    const T* first;
    const T* last;
    const T* begin() const { return first; }
    const T* end() const { return last; }
    size_t size() const { return static_cast<size_t>(last - first); }
  };
  Range operator[](size_t i) const {
    return {items.data() + begin[i], items.data() + begin[i + 1]};
  }
};

/// Presupposes check_structure. Refers to the Program.
class Model {
 public:
  struct Signaller {
    uint32_t task;
    ir::RankRef to;
  };
  struct Waiter {
    uint32_t task;
    ir::RankRef from;
    uint32_t lag;
  };

  Model(const ir::Program& program, bool use_symmetry);

  const ir::Program& program;
  const int world;
  /// True if rotating the ranks maps the Program's order to itself: then what holds of rank 0 holds
  /// of all.
  bool symmetric = false;
  /// Ranks that are followed: 1 if symmetric, else world.
  int followed = 1;
  /// Launches that are followed. Slots are what launches of different ranks share: copy e mod
  /// rotation is used again after `rotation` launches, and an order there implies that of later
  /// launches, since a launch follows the one before it on its own rank. All else is private to a
  /// rank, where launches follow each other.
  int launches = 1;
  bool has_packets = false;  // events that are flags inside of data

  std::vector<std::vector<uint32_t>> streams;  // without the empty ones
  std::vector<uint32_t> stream_of;             // by task
  Lists<Signaller> signallers;                 // by event; a task that signals twice is there twice
  Lists<Waiter> waiters;

  size_t tasks() const { return program.tasks.size(); }
  bool runs(uint32_t task, int rank) const { return (program.tasks[task].ranks >> rank) & 1; }
  /// Whether a task that waits for packets surely waits: not if its tile may lie beyond the actual
  /// rows, where there is nothing to poll.
  bool surely_polls(uint32_t task) const { return vacuous_.empty() || !vacuous_[task]; }
  const ir::Event& event(ir::EventId e) const { return program.events[index(e)]; }
  /// The task that signals Peer or Packet event `e` from `source` to `rank`. There is exactly one
  /// where somebody waits for it (check_counts); ~0u if there is none.
  uint32_t signaller(ir::EventId e, int source, int rank) const;

 private:
  std::vector<bool> vacuous_;  // by task
};

}  // namespace maco::verify
