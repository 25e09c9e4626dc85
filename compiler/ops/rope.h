// What other ops that turn rows share with rope.
#pragma once

#include <cstdint>

#include "compiler/ops/op.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::ops {

/// Which inputs of a `rope` are what, 0 if there is none: x comes first, then positions, then
/// cosines (`tables`) and sines.
struct RopeInputs {
  int positions = 0, tables = 0;
};
RopeInputs rope_inputs(const ir::Op& op);

/// A table for the device: how far each pair of a head turns from one position to the next, in
/// units of 2^-64 of a turn, which are exact to 2^-53 of a turn and the same for every compiler and
/// device. From the op's `theta` and `scaling`.
ir::Table rope_turns(const ir::Op& op, int64_t head_dim);

}  // namespace maco::ops
