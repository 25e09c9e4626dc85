// maco-run --processes: one process a rank.
#pragma once

#include <string>
#include <vector>

#include "tools/driver.h"

namespace maco::tools {

/// Starts this program once more for each of `ranks` ranks, with these arguments and in its
/// environment who it is (RANK, WORLD_SIZE, ...), and waits for all. The worst of their exit
/// statuses, having reported those that a signal ended; what stops this process stops them.
int run_processes(int ranks, const std::vector<std::string>& arguments, const Console& console);

}  // namespace maco::tools
