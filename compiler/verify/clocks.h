// Happens-before by vector clocks. A clock says of every stream of every rank how many of its tasks
// (over all launches) are known to have ended. One live clock a stream; a clock that a signal
// carries is kept until its last waiter has read it.
//
// A clock has two parts. What it says of its own rank is its own. What it says of the other ranks
// changes only where something arrives from a peer, so that most clocks of a rank share it: it is
// counted, and copied before it is changed.
//
// Two orders are kept where there are packets. The `strong` one has an edge for streams, launches
// and events: release and acquire, what was written before is seen after. The `weak` one also has
// the packets' edges: a packet carries its own data and nothing else, but whoever saw it knows that
// what came before it on its sender is over. A read that is over can't see a later write.
#pragma once

#include <array>
#include <cstdint>
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
      const size_t p = plane == Plane::Strong ? 0 : weak_;
      if (rank == rank_) return static_cast<uint32_t>(own_[p * streams_ + stream]);
      if (others_ == nullptr) return 0;
      const int turned = rank < turn_ ? rank - turn_ + world_ : rank - turn_;
      return static_cast<uint32_t>(
          others_[(p * static_cast<size_t>(world_) + static_cast<size_t>(turned)) * streams_ +
                  stream]);
    }

   private:
    friend class Clocks;
    const int32_t* own_;
    const int32_t* others_;
    size_t streams_, weak_;  // weak_: the number of the weak plane
    int rank_, turn_, world_;
  };
  /// For the stream of rank `rank`, which may be any rank in a symmetric model. Valid until `end`.
  View view(uint32_t stream, int rank) const {
    const uint32_t at = live(model_.symmetric ? 0 : rank, stream);
    View v;
    v.own_ = own(at);
    v.others_ = others_of_[at] == kNone ? nullptr : others(others_of_[at]);
    v.streams_ = streams_;
    v.weak_ = planes_ - 1;
    v.rank_ = rank;
    v.turn_ = model_.symmetric ? rank : 0;
    v.world_ = model_.world;
    return v;
  }

 private:
  using Word = int32_t;  // signed: SSE2 compares signed words only
  static constexpr uint32_t kNone = ~0u;
  struct Held {
    uint32_t clock = 0;
    uint32_t readers = 0;
  };

  // Clocks by number. The first are the live ones, by rank and stream.
  uint32_t live(int rank, uint32_t stream) const {
    return static_cast<uint32_t>(static_cast<size_t>(rank) * streams_ + stream);
  }
  Word* own(uint32_t clock) { return own_.data() + size_t{clock} * planes_ * streams_; }
  const Word* own(uint32_t clock) const { return own_.data() + size_t{clock} * planes_ * streams_; }
  uint32_t allocate();
  void release(Held& held);
  void copy(uint32_t to, uint32_t from);
  void join(uint32_t to, uint32_t from);
  void receive(uint32_t to, int rank, uint32_t from, int source, bool packet);

  // What clocks say of other ranks, by number: by plane, rank and stream.
  Word* others(uint32_t id) { return others_.data() + size_t{id} * planes_ * width_; }
  const Word* others(uint32_t id) const { return others_.data() + size_t{id} * planes_ * width_; }
  uint32_t allocate_others();
  void drop_others(uint32_t id);
  void share_others(uint32_t& to, uint32_t from);
  void join_others(uint32_t& to, uint32_t from);
  void make_exclusive(uint32_t& id);

  Held& sent(uint32_t task, int rank, int launch) {
    return sent_[(static_cast<size_t>(launch) % sent_launches_ * senders_ + sender_[task]) *
                     static_cast<size_t>(model_.followed) +
                 static_cast<size_t>(rank)];
  }
  uint32_t peer_readers(Node node) const;

  const Model& model_;
  const size_t streams_;
  const size_t width_;   // words of a plane of others
  const size_t planes_;  // 1 or 2
  int launch_ = 0;
  std::vector<Word> own_;
  std::vector<uint32_t> others_of_;  // by clock
  std::vector<uint32_t> free_;
  std::vector<Word> others_;
  std::vector<uint32_t> others_users_;
  std::vector<uint64_t> others_version_;  // new whenever others_ change; never used twice
  std::vector<uint32_t> others_free_;
  uint64_t versions_ = 0;
  // The results of comparisons of two: most streams meet the same pair one after another.
  enum class Compared : uint8_t { Neither, FirstHolds, SecondHolds };
  struct Known {
    uint64_t first = 0, second = 0;
    Compared answer = Compared::Neither;
  };
  std::array<Known, 256> known_{};

  std::vector<Held> local_;  // by rank and Local event: the join of its signals of this launch
  std::vector<uint32_t> local_readers_;  // waits a launch, by rank and Local event
  // What Peer and Packet signals carry, by launch (modulo the longest lag), sender and rank.
  std::vector<uint32_t> sender_;  // by task: its number among those that signal peers
  size_t senders_ = 0;
  size_t sent_launches_ = 1;
  std::vector<Held> sent_;
};

}  // namespace maco::verify
