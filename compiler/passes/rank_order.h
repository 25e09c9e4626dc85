// Sends and receives, and the order of ops that all ranks keep.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/collectives/messages.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::passes {

/// On a rank ops start when those of `before` (by op) have ended there. A receive also waits for
/// its send on another rank, and a collective until all ranks are there.
class RankOrder {
 public:
  /// Refers to all of them.
  RankOrder(const ir::Graph& graph, const ops::Messages& messages,
            const std::vector<std::vector<size_t>>& before);

  /// False, having reported, if an op on some rank waits for itself.
  bool every_op_runs(ir::Diagnostics& diagnostics) const;
  /// The ops in an order in which every dependency on a rank points forward, and a send stands
  /// before its receives, unless they pass something on to it: the order of the definition where
  /// that is one, but for priorities. Presupposes that every op runs.
  std::vector<ir::OpId> linear() const;
  /// False, having reported, if ranks that do one op after the other, in this order, wait for each
  /// other for ever.
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
  void report(std::vector<Node> cycle, ir::Diagnostics& diagnostics) const;
  std::string describe(Node n) const;

  const ir::Graph& g_;
  const ops::Messages& messages_;
  const std::vector<std::vector<size_t>>& before_;
  const int world_;
};

}  // namespace maco::passes
