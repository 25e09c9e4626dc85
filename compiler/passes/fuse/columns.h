// Ops that read some columns of a matrix in place of all, and how ropes rotate heads.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ops/movement.h"
#include "ir/graph.h"

namespace maco::passes {

/// The columns that `op` reads of its operand `of`: those that its attributes name, or all.
ops::Columns columns_read(const ir::Graph& graph, const ir::Op& op, ir::TensorId of);
/// Whether `op` may read columns of `x` in place of its operand `t`, and isn't slower then.
bool takes_columns(const ir::Graph& graph, const ir::Op& op, ir::TensorId t, ir::TensorId x,
                   ops::Columns columns);
/// Makes `op` read these columns.
void take_columns(ir::Op& op, ir::TensorId t, ir::TensorId x, ops::Columns columns, ir::Loc loc);

/// How `rope`, an op without a tensor of positions, rotates the heads of its rows, wherever these
/// lie. What is left out has its default.
struct Turns {
  std::optional<ir::Expr> head_dim, position;
  int64_t rotary_dim = 0;
  double theta = 0, attention_factor = 1;
  bool interleaved = false;
  std::optional<ir::Attr> scaling;
  std::vector<ir::TensorId> given;  // cosines and sines, or frequencies, or none
  friend bool operator==(const Turns&, const Turns&) = default;
};
Turns turns_of(const ir::Graph& graph, const ir::Op& rope);

}  // namespace maco::passes
