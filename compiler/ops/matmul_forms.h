// What products have besides a, b and y, by what passes made of them.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/functions/matmul.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "ir/graph.h"

namespace maco::ops {

/// Inputs: a, b, the other b of a pair, the weights of a norm or what rope_sines makes, the bias,
/// each if there is one, then the epilogue's.
struct MatmulInputs {
  functions::MatmulForm form{};
  int norm = 0, sines = 0, bias_at = 0;  // if there is one
  int epilogue_first = 0;                // input that the epilogue calls %1, or %2 of a pair
  bool bias = false;
};
MatmulInputs matmul_inputs(const ir::Op& op);

/// Columns [begin, end) of a product's result that become rows of a cache, output `out`.
struct MatmulAppended {
  int out = 1;
  int64_t begin = 0, end = 0;
};
/// What passes make of kv_appends: caches that take the last columns, those of the first cache and
/// then those of the next.
std::vector<MatmulAppended> matmul_appended(const ir::Graph& graph, const ir::Op& op);

/// Whether tasks of `product`, a matmul that is cut so, are mates, which have half of K each.
bool is_halved(const TileContext& product, const Cut& cut);

/// The shape rule.
void infer_matmul(InferContext& context);

}  // namespace maco::ops
