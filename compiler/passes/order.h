// Which ops of a graph must have ended on a rank before another op starts there.
#pragma once

#include <vector>

#include "compiler/ops/collectives/messages.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::passes {

struct OpOrder {
  /// All ops, so that every dependency points forward. Among ops without open dependencies the one
  /// with the higher priority comes first, then the one defined first.
  std::vector<ir::OpId> linear;
  /// For each op (by its index in the graph) the ops that must have ended as a whole: because of
  /// `after`, phases, regions, overlap, groups and barriers; without ops that others of the list
  /// imply.
  std::vector<std::vector<ir::OpId>> whole;
};

/// Orders the ops of `graph`, which has no cycle (checked when it was built; cycles through overlap
/// settings are reported here). Sends stand before their receives where possible. Reports a graph
/// in which some rank would wait for ever if all ranks keep the order.
bool order_ops(const ir::Graph& graph, const ops::Messages& messages, OpOrder& order,
               ir::Diagnostics& diagnostics);

}  // namespace maco::passes
