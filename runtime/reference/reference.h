// The reference: interprets an inferred graph, all ranks together, in float64, rounding each named
// tensor once to its dtype.
//
// It is the meaning of a graph with which --check compares, so it knows nothing of tasks,
// algorithms or schedules. It doesn't interpret passes' internal ops: it runs the user's graph as
// parsed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/reference/mailbox.h"
#include "runtime/reference/op.h"
#include "runtime/reference/tensor.h"
#include "runtime/status.h"

namespace maco::reference {

/// Checks that every scalar has a value within its range, and that every given dim exists and is
/// within its range. Adds the maxima of missing dims to `values`.
Status complete_values(const ir::Graph& graph, Values& values);

/// The actual shape of a tensor.
Extents actual_shape(const ir::Graph& graph, const Values& values, ir::TensorId tensor);

/// Not thread safe. States are kept from launch to launch; they begin with zeros.
class Reference {
 public:
  /// `graph` is inferred and valid, and is copied.
  explicit Reference(ir::Graph graph);
  const ir::Graph& graph() const { return graph_; }

  /// Binds an input, param or state of a rank. Inputs and params must have the actual shape of the
  /// launches that follow (checked by run). A state may have fewer rows than its maximum; its other
  /// rows then don't change.
  Status set(int rank, ir::TensorId tensor, Tensor value);

  /// One launch on all ranks. After a failure the states are as before the failed op.
  Status run(Values values);

  /// After a run: any tensor of the graph with its actual shape, temporaries too; before it, what
  /// was bound. For a state, the rows that the last launch's dims give it.
  Tensor get(int rank, ir::TensorId tensor) const;

 private:
  Tensor view(int rank, ir::TensorId tensor) const;
  void keep(int rank, ir::TensorId tensor, Tensor value);
  Call make_call(const ir::Op& op, int rank, std::vector<Tensor>& views);
  Status run_one(size_t op, int rank);
  Status run_collective(size_t op);
  Status bound() const;

  ir::Graph graph_;
  Values values_;  // of the current launch
  Mailbox mailbox_;
  std::vector<std::vector<Tensor>> tensors_;  // rank, tensor. States have their maximum shape
};

}  // namespace maco::reference
