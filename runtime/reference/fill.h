// Values for tensors that no file binds. They depend only on the seed, the tensor's name, the rank
// and the element's index, so that a device, a reference and a later run agree on them, whatever
// the order and the number of threads.
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "runtime/reference/op.h"
#include "runtime/reference/tensor.h"

namespace maco::reference {

/// The values with which a tensor is filled.
struct FillRule {
  enum class Kind : uint8_t { Zero, Normal, Integers };
  Kind kind = Kind::Normal;
  double scale = 1;        // Normal: the standard deviation
  int64_t lo = 0, hi = 1;  // Integers: [lo, hi)
};

/// - States are zero.
/// - Floats are normal with deviation 1. A param's deviation is 1/sqrt(K): K is the extent that a
///   matmul sums over where the param is a matmul's second operand, else the last axis's extent if
///   there are two axes or more, else 1 (biases and norm weights).
/// - What reaches an embedding's ids, also through states, ops that only move data, and casts of
///   floats, is integers within the table's rows; what reaches rope's positions, integers in
///   [0, 4096). Other i32 are in [-8, 8), u8 in [0, 16).
FillRule fill_rule(const ir::Graph& graph, ir::TensorId tensor);

/// The tensor's values on a rank, with the given actual shape.
Tensor fill(const ir::Graph& graph, ir::TensorId tensor, int rank, uint64_t seed,
            const Extents& shape);

}  // namespace maco::reference
