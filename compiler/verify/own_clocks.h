// Happens-before within each rank, of all ranks at once: what a task of a rank knows of the other
// tasks of its rank, by stream order and Local events alone. Less than what Clocks knows, at a
// fraction of the price: a task is visited once for all ranks and launches, and most clocks are
// equal, on a rank and from rank to rank, so that they are shared.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/verify/model.h"

namespace maco::verify {

class OwnClocks {
 public:
  explicit OwnClocks(const Model& model);

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
  uint32_t stream() const { return stream_; }
  int32_t place() const { return place_; }
  uint32_t streams() const { return streams_; }

 private:
  // Clocks by number; each has as many words as there are streams. Never changed, and kept while
  // somebody refers to it. Number 0 knows nothing.
  const int32_t* words(uint32_t clock) const { return words_.data() + size_t{clock} * streams_; }
  uint32_t allocate();
  uint32_t keep(uint32_t clock) { return ++users_[clock], clock; }
  void drop(uint32_t clock) {
    if (--users_[clock] == 0) free_.push_back(clock);
  }
  uint32_t join(uint32_t a, uint32_t b, uint32_t except);
  uint32_t join_and_raise(uint32_t a, uint32_t b, uint32_t stream, int32_t count);
  uint32_t& live(int rank, uint32_t stream) {
    return live_[static_cast<size_t>(rank) * streams_ + stream];
  }
  void make_views(uint32_t task);

  // The join of a Local event's signals.
  struct Held {
    std::vector<uint32_t> clocks;  // by rank; empty before the first signal and after the last wait
    uint32_t waits = 0;            // that are still to come
  };

  const Model& model_;
  const uint32_t streams_;
  std::vector<int32_t> words_;
  std::vector<uint32_t> users_, free_;
  std::vector<uint32_t> live_;  // by rank and stream
  std::vector<Held> events_;
  uint32_t stream_ = 0;
  int32_t place_ = 0;
  std::vector<View> views_;
  std::vector<uint32_t> view_clocks_;
};

}  // namespace maco::verify
