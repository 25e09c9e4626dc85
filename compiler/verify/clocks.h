// Happens-before by vector clocks. A clock says of every stream of every rank how many of its tasks
// (over all launches) are known to have ended. One live clock a stream; a clock that a signal
// carries is kept until its last waiter has read it.
//
// Two orders are kept where there are packets. The `strong` one has an edge for streams, launches
// and events: release and acquire, what was written before is seen after. The `weak` one also has
// the packets' edges: a packet carries its own data and nothing else, but whoever saw it knows that
// what came before it on its sender is over. A read that is over can't see a later write.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/verify/model.h"
#include "compiler/verify/order.h"

namespace maco::verify {

enum class Plane : uint8_t { Strong, Weak };

class Clocks {
 public:
  explicit Clocks(const Model& model);

  /// Nodes are visited launch by launch, in topological order. `start` makes the node's clock,
  /// `end` passes it on.
  void begin_launch(int launch);
  void start(Node node);
  void end(Node node);

  /// The number of a node in its stream, over all launches; from 1.
  uint32_t number(uint32_t task, int launch) const {
    const size_t length = model_.streams[model_.stream_of[task]].size();
    return static_cast<uint32_t>(static_cast<size_t>(launch) * length +
                                 static_cast<size_t>(model_.program.tasks[task].place) + 1);
  }
  /// What is known where the node of a stream stands that was started last.
  class View {
   public:
    /// How many tasks of `stream` on `rank` have ended, over all launches.
    uint32_t ended(Plane plane, int rank, uint32_t stream) const {
      const int turned = rank < turn_ ? rank - turn_ + world_ : rank - turn_;
      const int32_t* clock = plane == Plane::Strong ? strong_ : weak_;
      return static_cast<uint32_t>(clock[static_cast<size_t>(turned) * streams_ + stream]);
    }

   private:
    friend class Clocks;
    const int32_t* strong_;
    const int32_t* weak_;
    size_t streams_;
    int turn_, world_;
  };
  /// For the stream of rank `rank`, which may be any rank in a symmetric model. Valid until `end`.
  View view(uint32_t stream, int rank) const {
    View v;
    v.strong_ = live(model_.symmetric ? 0 : rank, stream);
    v.weak_ = v.strong_ + (planes_ - 1) * width_;
    v.streams_ = streams_;
    v.turn_ = model_.symmetric ? rank : 0;
    v.world_ = model_.world;
    return v;
  }

 private:
  using Word = int32_t;  // signed: SSE2 compares signed words only
  struct Held {
    uint32_t clock = 0;
    uint32_t readers = 0;
  };

  Word* clock(uint32_t id) { return pool_.data() + size_t{id} * planes_ * width_; }
  const Word* live(int rank, uint32_t stream) const {
    return pool_.data() + (static_cast<size_t>(rank) * streams_ + stream) * planes_ * width_;
  }
  Word* live(int rank, uint32_t stream) {
    return clock(static_cast<uint32_t>(static_cast<size_t>(rank) * streams_ + stream));
  }
  uint32_t allocate();
  void release(Held& held) {
    if (--held.readers == 0) free_.push_back(held.clock);
  }
  uint64_t key(uint32_t task, int rank, int launch) const {
    return (static_cast<uint64_t>(launch) * model_.tasks() + task) * 64 +
           static_cast<uint64_t>(rank);
  }
  void join(Word* to, const Word* from, size_t planes, size_t first_plane, int rotation) const;
  uint32_t peer_readers(Node node) const;

  const Model& model_;
  const size_t streams_;
  const size_t width_;   // words of a plane
  const size_t planes_;  // 1 or 2
  int launch_ = 0;
  std::vector<Word> pool_;
  std::vector<uint32_t> free_;
  std::vector<Held> local_;  // by rank and Local event: the join of its signals of this launch
  std::vector<uint32_t> local_readers_;  // waits a launch, by rank and Local event
  std::unordered_map<uint64_t, Held>
      sent_;  // by node and launch: what its Peer and Packet signals carry
};

}  // namespace maco::verify
