// The order of tasks where some have priority.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace maco::passes {

/// What running a task takes.
struct Demand {
  double microseconds = 0;
  uint32_t home = 0;  // which list of SMs may run it
};
struct Turn {
  ir::TaskId task{};
  int32_t sm = 0;
};

/// Simulates a planned Program: a free SM takes, of the tasks that are ready and may run there, the
/// one of the highest priority, and of those the first in Program order. A task is ready when all
/// that it depends on, on its rank or by a peer's signal, has ended. Returns the tasks in the order
/// in which they start, so that every dependency points forward.
std::vector<Turn> by_priority(const ir::Program& program, const std::vector<Demand>& demands,
                              const std::vector<std::vector<int32_t>>& homes);

}  // namespace maco::passes
