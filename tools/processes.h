// maco-run --processes: one process for each rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/driver.h"

namespace maco::tools {

/// Starts this program once more for each of `ranks` ranks, with these arguments and its place in
/// the environment (RANK, WORLD_SIZE, ...), and waits for all. Returns the worst of their exit
/// statuses, after reporting those that a signal ended. If this process ends, so do they. Once one
/// has ended badly, the others have `grace_ms` to find out; when only processes stopped by a signal
/// are left, these are ended.
int run_processes(int ranks, const std::vector<std::string>& arguments, uint64_t grace_ms,
                  const Console& console);

}  // namespace maco::tools
