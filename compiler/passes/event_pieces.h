// Sets of tasks that are waited for, cut into pieces where they overlap, so that a task signals
// one event rather than one for each set that it is in.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace maco::passes {

struct EventPieces {
  std::vector<std::vector<ir::TaskId>> tasks;  // by piece, in the sets' order
  std::vector<std::vector<uint32_t>> of;       // by set: the pieces that together are the set
};

/// `sets`: each ascending. `uses`: by set, how many tasks wait for it. A set is cut where that
/// takes fewer signals and waits than an event of its own, and stays one piece otherwise. Pieces
/// may overlap: a set that many wait for stays whole where others hold it.
EventPieces cut_sets(std::vector<std::vector<ir::TaskId>> sets, std::vector<int64_t> uses);

}  // namespace maco::passes
