// What became of a graph, as a table for people.
#pragma once

#include <string>

#include "compiler/api/compile.h"

namespace maco::api {

/// SM roles, tasks by kind, what was fused and what wasn't, waits inserted and pruned, bytes
/// planned.
std::string report(const Compiled& compiled);

}  // namespace maco::api
