// Slots: what peers do to a rank's memory is ordered, in a launch and against the launches that use
// the same copy again.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/verify/launches.h"
#include "compiler/verify/model.h"
#include "compiler/verify/regions.h"

namespace maco::verify {

/// On rank `rank`, stream order and Local events have to order `first` before `second`.
struct OwnOrder {
  uint32_t first = 0, second = 0;
  int rank = 0;
};

/// `first` on one rank has to come before `second` on another; what `second` knows has to say so,
/// or one of these has to hold on a single rank.
struct FarOrder {
  Plane plane = Plane::Strong;
  uint32_t first = 0, second = 0;
  int first_rank = 0, second_rank = 0;
  uint32_t heard_by = ~0u;  // a task that waits for `first`: before `second`, on its rank
  uint32_t said_by = ~0u;   // a task that `second` waits for: after `first`, on its rank
};

/// Whether every two accesses to the same bytes of slots, one of them a write, are surely ordered
/// if `own` and `far`, to which it adds, hold too. `order`: the tasks, so that streams and all
/// waits point forward, on any ranks. Adds to `pairs` those that were compared.
bool slots_are_ordered(const Model& model, const Layout& layout, const std::vector<uint32_t>& order,
                       std::vector<OwnOrder>& own, std::vector<FarOrder>& far, int64_t& pairs);

}  // namespace maco::verify
