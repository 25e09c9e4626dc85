// Happens-before within each rank, of all ranks at once: what a task of a rank knows of the other
// tasks of its rank, by stream order and Local events and, if asked for, by what it hears of itself
// from its peers. Less than what Clocks knows, at a fraction of the price: a task is visited once
// for all ranks and launches, and most clocks are equal, on a rank and from rank to rank, so that
// they are shared.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/verify/clocks.h"
#include "compiler/verify/heard_places.h"
#include "compiler/verify/model.h"

namespace maco::verify {

/// Which signals between ranks count. Nothing: none. Echoes: Peer events, as far as a rank hears
/// from ranks that have waited for it. Events: all Peer events. Packets: packets too, which tell no
/// more than that their sender is past what came before them (clocks.h).
enum class Heard : uint8_t { Nothing, Echoes, Events, Packets };

class OwnClocks {
 public:
  /// A rank heard of itself, before `task` started, that `sender` has ended there.
  struct HeardOfItself {
    uint32_t task, sender;
    int rank;
  };
  OwnClocks(const Model& model, Heard heard);
  /// Gives the answers, except heard_of(), of an object that has visited all tasks and found what
  /// ranks `heard` of themselves, at the cost of one that hears nothing.
  OwnClocks(const Model& model, const std::vector<HeardOfItself>& heard);
  const std::vector<HeardOfItself>& heard_of_themselves() const { return heard_of_themselves_; }
  /// How many words a clock takes for what it hears from peers.
  static size_t peer_words(const Model& model, Heard heard);

  /// Tasks are visited in an order in which streams and all waits point forward, on any ranks.
  void start(uint32_t task);
  void end(uint32_t task);

  /// Ranks that run the task that was started last and know the same, and how many tasks of each
  /// stream have ended there. The entry for the task's own stream may be out of date.
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
  /// Clocks, and rows of what was heard of a rank, that were joined word by word so far.
  int64_t joins() const { return joins_ + (heard_places_ ? heard_places_->rows_made() : 0); }

 private:
  // Clocks by number; kept while somebody refers to them. Number 0 knows nothing. The words: of
  // each stream of the rank how many tasks have ended. What it has heard is a list of
  // `heard_places_`: of each rank (in a symmetric model: of each that many ranks further) a row
  // that says of each stream that signals peers the place, plus 1, of the last such task that it
  // has heard of; then, with packets, the same by packets too. What that task knew of its rank is
  // looked up.
  const int32_t* words(uint32_t clock) const { return words_.data() + size_t{clock} * streams_; }
  int32_t* words(uint32_t clock) { return words_.data() + size_t{clock} * streams_; }
  uint32_t allocate();
  uint32_t keep(uint32_t clock) { return ++users_[clock], clock; }
  void drop(uint32_t clock) {
    if (--users_[clock] == 0) free_.push_back(clock);
  }
  uint32_t copy(uint32_t clock);
  uint32_t joined_clock();
  void join_words(uint32_t to, uint32_t from);
  void join_into(uint32_t to, uint32_t from);
  bool equal(uint32_t a, uint32_t b) const;

  // Ranks that share a clock.
  struct Part {
    uint64_t ranks;
    uint32_t clock;
  };
  using Parts = std::vector<Part>;  // disjoint; a clock is there once
  void add(Parts& parts, uint64_t ranks, uint32_t clock);
  void add_equal(Parts& parts, uint64_t ranks, uint32_t clock);
  uint32_t taken_out(Parts& parts, int rank);
  void drop(Parts& parts);

  // The join of a Local event's signals: its clocks are its own until something waits for it.
  struct Told : Part {
    uint32_t joined = 0;          // the clock that was joined last, of which it knows all
    std::vector<uint32_t> lists;  // that are to be joined when all have signalled
  };
  struct Held {
    std::vector<Told> parts;  // none before the first signal and after the last wait
    uint32_t waits = 0;       // that are still to come
    bool sealed = false;
  };
  void signal(Held& held);
  void wait(uint32_t task);
  void tell(Told& part, uint32_t now);
  void seal(Held& held);

  static constexpr uint32_t kNone = ~0u;

  const Model& model_;
  const uint32_t streams_;
  const uint64_t followed_;  // a bit a rank
  std::vector<int32_t> words_;
  std::vector<uint32_t> lists_;  // by clock: what it has heard
  std::vector<uint32_t> users_, free_;
  int64_t joins_ = 0;
  std::vector<Parts> live_;  // by stream
  std::vector<Held> events_;
  // What peers told.
  void number_senders(const std::vector<bool>& sends);
  void hear(uint32_t task);
  void gather(uint32_t task, const ir::Wait& wait);
  uint32_t with_heard(uint32_t clock, int rank);
  void look_up(uint32_t clock, int rank, uint32_t row);
  void look_up(uint32_t clock, int rank, uint32_t sender, int32_t ended);
  void hear_again(uint32_t task);
  void hear_echoes(uint32_t task);
  void find_echoes(uint32_t task, int rank);
  uint32_t sent_by(uint32_t task, int rank) const;
  void forget_unheard();
  /// The row of a list that says of rank `of` what has been heard.
  size_t row_of(Plane plane, int of) const {
    return static_cast<size_t>(plane == Plane::Weak ? model_.world + of : of);
  }
  // What one sender says to some ranks: a list's rows.
  struct Saying {
    uint64_t ranks;
    size_t first;  // of said_
  };
  const Heard heard_;
  std::vector<uint32_t> sender_streams_;  // by number among them
  std::vector<uint32_t> column_;          // by stream: its number among those that signal peers
  std::vector<uint32_t> sender_;          // by task: its number among those that signal peers
  std::vector<Parts> sent_;               // by that number: what it knew, without itself
  std::unique_ptr<HeardPlaces> heard_places_;  // if anything is heard
  std::vector<Saying> sayings_;                // that the task hears
  std::vector<uint32_t> said_, list_, rows_;
  std::vector<HeardOfItself> heard_of_themselves_;
  const std::vector<HeardOfItself>* again_ = nullptr;
  size_t next_again_ = 0;
  std::vector<bool> waits_for_peers_;  // by task, where echoes count
  std::vector<uint32_t> echoes_;       // tasks of a rank
  uint32_t stream_ = 0;
  int32_t place_ = 0;
  std::vector<View> views_;
  Parts scratch_;
  // The events that the started task waits for, and the clocks that are to be joined for it.
  std::vector<Held*> awaited_;
  std::vector<uint32_t> clocks_, lists_of_clocks_;
  std::vector<int32_t> joined_words_;
};

}  // namespace maco::verify
