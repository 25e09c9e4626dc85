// Which ops of a graph must have ended on a rank before another starts there.
#pragma once

#include <vector>

#include "compiler/ops/collectives/messages.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::passes {

struct OpOrder {
  /// All ops, so that every dependency points forward; among ops that are free the one of higher
  /// priority, then the one defined first, comes first.
  std::vector<ir::OpId> linear;
  /// For each op (by its index in the graph) the ops that must have ended as a whole: `after`,
  /// phases, regions, overlap, groups, barriers; without those that others of the list imply.
  std::vector<std::vector<ir::OpId>> whole;
};

/// Orders `graph`, which has no cycle (checked when it was built; a cycle made by overlap settings
/// is reported here). Sends stand before what receives them where that can be, and no rank waits
/// for ever if all keep the order: a graph in which one would is reported.
bool order_ops(const ir::Graph& graph, const ops::Messages& messages, OpOrder& order,
               ir::Diagnostics& diagnostics);

}  // namespace maco::passes
