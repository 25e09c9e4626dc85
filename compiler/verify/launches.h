// Which launches of ranks a task comes before and after, as sets of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/verify/clocks.h"
#include "compiler/verify/model.h"

namespace maco::verify {

/// On a rank all of a launch precedes the next. So of two tasks the first, in a launch, precedes
/// the second, in a later one, if on some rank something comes after the first in its launch, and
/// something before the second in its own. Waits for earlier launches may order more than is known
/// here.
class LaunchOrder {
 public:
  /// `order`: the tasks, so that streams and all waits point forward, on any ranks. Only tasks that
  /// `asked` (by task) can be asked for.
  LaunchOrder(const Model& model, const std::vector<uint32_t>& order,
              const std::vector<bool>& asked);

  /// Whether `first` on rank `first_rank` surely precedes what `second` on `second_rank` does
  /// `launches` launches later, at least 1.
  bool precedes(Plane plane, uint32_t first, int first_rank, uint32_t second, int second_rank,
                int launches) const;

 private:
  struct Ranks {
    std::vector<uint64_t> before, after;  // by followed rank and number of the task
    std::vector<uint64_t> ever;           // by followed rank: whom it hears of in a launch
  };
  uint64_t turned(uint64_t ranks, int by) const;
  uint64_t of(const std::vector<uint64_t>& sets, uint32_t task, int rank) const;
  bool counts(const ir::Event& event, uint32_t waiter, Plane plane) const;
  void look_back(Plane plane, const std::vector<uint32_t>& order, Ranks& ranks);
  void look_ahead(Plane plane, const std::vector<uint32_t>& order, Ranks& ranks);
  size_t at(uint32_t task, int rank) const {
    return size_t{number_[task]} * static_cast<size_t>(model_.followed) + static_cast<size_t>(rank);
  }

  static constexpr uint32_t kNone = ~0u;
  const Model& model_;
  const uint64_t world_;          // a bit a rank
  std::vector<uint32_t> number_;  // by task: of those whose sets are kept
  size_t kept_ = 0;
  Ranks strong_, weak_;  // `weak_` is empty without packets
};

}  // namespace maco::verify
