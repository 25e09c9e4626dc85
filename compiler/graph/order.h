// Checks that the ops of a graph are ordered without a cycle.
#pragma once

#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

/// Reports the cycles of data order, `after`, phases, regions and barriers together. Skips names
/// that nothing has.
void check_order(const ir::Graph& graph, Report& report);

}  // namespace maco::graph
