// The order of ops that all ranks keep, with sends and receives.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/collectives/messages.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::passes {

/// On a rank an op starts when the ops of `before` (by op) have ended there. A receive also waits
/// for its send on another rank, and a collective until all ranks have reached it.
class RankOrder {
 public:
  /// Keeps references to all of them.
  RankOrder(const ir::Graph& graph, const ops::Messages& messages,
            const std::vector<std::vector<size_t>>& before);

  /// Returns false, after reporting, if an op on some rank waits for itself.
  bool every_op_runs(ir::Diagnostics& diagnostics) const;
  /// The ops in an order in which every dependency on a rank points forward, and a send stands
  /// before its receives unless they pass something on to it. This is the order of the definitions
  /// if that is such an order, but for priorities. Every op must run.
  std::vector<ir::OpId> linear() const;
  /// Returns false, after reporting, if ranks that execute one op after the other, in this order,
  /// wait for each other for ever.
  bool every_op_runs_in(const std::vector<ir::OpId>& linear, ir::Diagnostics& diagnostics) const;

 private:
  struct Node {  // an op on a rank
    size_t op = 0;
    int rank = 0;
  };
  std::vector<Node> waits_of(Node n) const;
  std::vector<int> heard_of(Node n) const;
  std::vector<size_t> circles() const;
  bool is_message(size_t op) const;
  bool receives(size_t op) const;
  void report(std::vector<Node> cycle, ir::Diagnostics& diagnostics) const;
  std::string describe(Node n) const;

  const ir::Graph& g_;
  const ops::Messages& messages_;
  const std::vector<std::vector<size_t>>& before_;
  const int world_;
};

}  // namespace maco::passes
