// Happens-before within each rank, of all ranks at once: what a task of a rank knows of the other
// tasks of its rank, by stream order and Local events and, if asked for, by what it hears of itself
// from its peers. Less than what Clocks knows, at a fraction of the price: a task is visited once
// for all ranks and launches, and most clocks are equal, on a rank and from rank to rank, so that
// they are shared.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/verify/clocks.h"
#include "compiler/verify/model.h"

namespace maco::verify {

/// What of the signals between ranks counts: none; Peer events; packets too, which order no more
/// than that their sender is past what came before them (clocks.h).
enum class Heard : uint8_t { Nothing, Events, Packets };

class OwnClocks {
 public:
  OwnClocks(const Model& model, Heard heard);
  /// What that takes for a clock, in words.
  static size_t peer_words(const Model& model, Heard heard);

  /// Tasks are visited in an order in which streams and all waits point forward, on any ranks.
  void start(uint32_t task);
  void end(uint32_t task);

  /// Of the task that was started last: ranks that run it and know the same, and how many tasks of
  /// each stream have ended there. What is said of the task's own stream may be out of date.
  struct View {
    uint64_t ranks;
    const int32_t* ended;
  };
  const std::vector<View>& views() const { return views_; }
  /// Whether task `place` of `stream` has ended, for the ranks of a view.
  bool ended(const View& view, uint32_t stream, int32_t place) const {
    return stream == stream_ ? place < place_ : place < view.ended[stream];
  }
  /// Whether the task that was started last, on `rank`, has heard that `task` has ended on rank
  /// `of`, another.
  bool heard_of(Plane plane, int rank, uint32_t task, int of) const;
  uint32_t stream() const { return stream_; }
  int32_t place() const { return place_; }
  uint32_t streams() const { return streams_; }

 private:
  // Clocks by number; kept while somebody refers to them. Number 0 knows nothing. The words: of
  // each stream of the rank how many tasks have ended; then, of each rank (in a symmetric model: of
  // each that many ranks further) and each stream that signals peers the place, plus 1, of the last
  // such task that it has heard of; then, with packets, the same by packets too. What that task
  // knew of its rank is looked up.
  const int32_t* words(uint32_t clock) const { return words_.data() + size_t{clock} * width_; }
  int32_t* words(uint32_t clock) { return words_.data() + size_t{clock} * width_; }
  uint32_t allocate();
  uint32_t keep(uint32_t clock) { return ++users_[clock], clock; }
  void drop(uint32_t clock) {
    if (--users_[clock] == 0) free_.push_back(clock);
  }
  uint32_t copy(uint32_t clock);
  uint32_t join(uint32_t a, uint32_t b, uint32_t except);
  void join_words(uint32_t to, const int32_t* from);

  // Ranks that share a clock.
  struct Part {
    uint64_t ranks;
    uint32_t clock;
    uint32_t joined = 0;  // of an event: the clock that was joined last, of which it knows all
  };
  using Parts = std::vector<Part>;  // disjoint; a clock is there once
  void add(Parts& parts, uint64_t ranks, uint32_t clock);
  void drop(Parts& parts);

  // The join of a Local event's signals: its clocks are its own until something waits for it.
  struct Held {
    Parts parts;         // none before the first signal and after the last wait
    uint32_t waits = 0;  // that are still to come
    bool sealed = false;
  };
  void signal(Held& held);
  void wait(Held& held, uint64_t ranks);
  void tell(Part& part, uint32_t now);
  void seal(Held& held);

  static constexpr uint32_t kNone = ~0u;

  const Model& model_;
  const uint32_t streams_;
  size_t width_;             // words of a clock
  const uint64_t followed_;  // a bit a rank
  std::vector<int32_t> words_;
  std::vector<uint32_t> users_, free_;
  std::vector<Parts> live_;  // by stream
  std::vector<Held> events_;
  // Of peers.
  void hear(uint32_t task, const ir::Wait& wait);
  void hear(uint64_t ranks, const int32_t* said);
  uint32_t with_heard(uint32_t clock, int rank, const int32_t* said);
  void look_up(uint32_t clock, int rank, const int32_t* said);
  uint32_t sent_by(uint32_t task, int rank) const;
  /// Where a clock says of rank `of` what it has heard.
  size_t words_of(Plane plane, int of) const {
    const size_t ranks = static_cast<size_t>(plane == Plane::Weak ? model_.world + of : of);
    return streams_ + ranks * sender_streams_.size();
  }
  const Heard heard_;
  std::vector<uint32_t> sender_streams_;  // by number among them
  std::vector<uint32_t> column_;          // by stream: its number among those that signal peers
  std::vector<uint32_t> sender_;          // by task: its number among those that signal peers
  std::vector<Parts> sent_;               // by that number: what it knew, without itself
  std::vector<int32_t> said_;
  uint32_t stream_ = 0;
  int32_t place_ = 0;
  std::vector<View> views_;
  Parts scratch_;
};

}  // namespace maco::verify
