// Cuts awaited sets of tasks into pieces where they overlap, so that a task signals one event
// instead of one for each set that contains it.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace maco::passes {

struct EventPieces {
  std::vector<std::vector<ir::TaskId>> tasks;  // by piece, in the sets' order
  std::vector<std::vector<uint32_t>> of;       // by set: the pieces that together are the set
};

/// `sets`: each ascending. `uses`: for each set, how many tasks wait for it. A set is cut if that
/// takes fewer signals and waits than an event of its own, and otherwise stays one piece. Pieces
/// may overlap: a set for which many wait stays whole even where other sets contain it.
EventPieces cut_sets(std::vector<std::vector<ir::TaskId>> sets, std::vector<int64_t> uses);

}  // namespace maco::passes
