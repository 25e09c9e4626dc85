// What other ops that turn rows share with rope.
#pragma once

#include <cstdint>

#include "compiler/ops/op.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// Which inputs of a `rope` that is well-formed are what, 0 if there is none: x comes first, then
/// positions unless it has `position`, then cosines (`tables`) and sines, or frequencies.
struct RopeInputs {
  int positions = 0, tables = 0, frequencies = 0;
  /// The first of those in place of `theta` and `scaling`: from it on come no others.
  int given() const { return tables > 0 ? tables : frequencies; }
};
RopeInputs rope_inputs(const ir::Op& op);

/// Elements of each head of `op`, a rope or what became of it, that turn: its `rotary_dim`.
int64_t rotary_dim(const ir::Graph& graph, const ir::Op& op);

/// Checks `rotary_dim` of an op that turns heads of `head_dim`, and gives it.
int64_t check_rotary(InferContext& context, int64_t head_dim);
/// Checks that input `i` has frequencies of `pairs` pairs.
void check_frequencies(InferContext& context, int i, int64_t pairs);

/// A table for the device: how far each of the pairs of `rotary_dim` elements turns from one
/// position to the next, in units of 2^-64 of a turn, which are exact to 2^-53 of a turn and the
/// same for every compiler and device. From the op's `theta` and `scaling`.
ir::Table rope_turns(const ir::Op& op, int64_t rotary_dim);

}  // namespace maco::ops
