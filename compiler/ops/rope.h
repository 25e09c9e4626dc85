// What rope shares with other ops that rotate rows.
#pragma once

#include <cstdint>

#include "compiler/ops/op.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// The numbers of the inputs of a well-formed `rope`, 0 for inputs that it doesn't have. x comes
/// first, then positions unless the op has `position`, then cosines (`tables`) and sines, or
/// frequencies.
struct RopeInputs {
  int positions = 0, tables = 0, frequencies = 0;
  /// The first input that replaces `theta` and `scaling`; no other inputs follow.
  int given() const { return tables > 0 ? tables : frequencies; }
};
RopeInputs rope_inputs(const ir::Op& op);

/// How many elements of each head are rotated: `rotary_dim` of `op`, a rope or an op that replaced
/// one.
int64_t rotary_dim(const ir::Graph& graph, const ir::Op& op);

/// Checks `rotary_dim` of an op that rotates heads of `head_dim`, and returns it.
int64_t check_rotary(InferContext& context, int64_t head_dim);
/// Checks that input `i` has frequencies for `pairs` pairs.
void check_frequencies(InferContext& context, int i, int64_t pairs);

/// A table for the device: how far each pair of the first `rotary_dim` elements rotates from one
/// position to the next. The unit is 2^-64 of a full rotation; values are exact to 2^-53 of one,
/// and the same for every compiler and device. They follow from the op's `theta` and `scaling`.
ir::Table rope_turns(const ir::Op& op, int64_t rotary_dim);

}  // namespace maco::ops
