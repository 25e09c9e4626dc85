// What orders the ops of a graph has no cycle.
#pragma once

#include "compiler/graph/report.h"
#include "ir/graph.h"

namespace maco::graph {

/// Reports the cycles of data order, `after`, phases, regions and barriers together. Names that
/// nothing has are passed over.
void check_order(const ir::Graph& graph, Report& report);

}  // namespace maco::graph
