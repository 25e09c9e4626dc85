// The order of tasks if some have priority.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace maco::passes {

/// What a task needs to run.
struct Demand {
  double microseconds = 0;
  uint32_t home = 0;  // the list of SMs that may run it
};
struct Turn {
  ir::TaskId task{};
  int32_t sm = 0;
};

/// Simulates a planned Program. A free SM takes a ready task that may run there: of the highest
/// priority, and then the first in Program order. A task is ready when all tasks on which it
/// depends, on its rank or through a peer's signal, have ended. Returns the tasks in the order in
/// which they start, so that every dependency points forward.
std::vector<Turn> by_priority(const ir::Program& program, const std::vector<Demand>& demands,
                              const std::vector<std::vector<int32_t>>& homes);

}  // namespace maco::passes
