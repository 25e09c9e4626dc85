// What passes give matmuls besides a, b and y.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/functions/matmul.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "ir/graph.h"

namespace maco::ops {

/// The order of inputs: a, b, the other b of a pair, the weights of a norm or the result of
/// rope_sines, the bias, each only if there is one, then the epilogue's operands.
struct MatmulInputs {
  functions::MatmulForm form{};
  int norm = 0, sines = 0, bias_at = 0;  // 0 if there is none
  int epilogue_first = 0;                // the input that the epilogue calls %1, or %2 for a pair
  bool bias = false;
};
MatmulInputs matmul_inputs(const ir::Op& op);

/// Columns [begin, end) of a matmul's result that become rows of a cache, which is output `out`.
struct MatmulAppended {
  int out = 1;
  int64_t begin = 0, end = 0;
};
/// What passes have made of kv_appends: caches that take the last columns, the first cache's
/// columns before the next cache's.
std::vector<MatmulAppended> matmul_appended(const ir::Graph& graph, const ir::Op& op);

/// Whether tasks of `product`, a matmul with this cut, are mates, each with half of K.
bool is_halved(const TileContext& product, const Cut& cut);

/// The shape rule.
void infer_matmul(InferContext& context);

}  // namespace maco::ops
