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

/// Whether every two accesses to the same bytes of slots, one of them a write, are surely ordered
/// if `needed`, to which it adds, holds too. `order`: the tasks, so that streams and all waits
/// point forward, on any ranks. Adds to `pairs` those that were compared.
bool slots_are_ordered(const Model& model, const Layout& layout, const std::vector<uint32_t>& order,
                       std::vector<OwnOrder>& needed, int64_t& pairs);

/// Whether what a wait or several of `second` on `second_rank` wait for shows that `first` on
/// another rank has ended, if `needed`, to which it adds, holds.
bool told_directly(const Model& model, Plane plane, uint32_t first, int first_rank, uint32_t second,
                   int second_rank, std::vector<OwnOrder>& needed);

}  // namespace maco::verify
