// attention: softmax(q k^T * scale) v for BQ rows of one head.
#include <algorithm>

#include "compiler/functions/families.h"

namespace maco::functions {

namespace {

// Queries and the scores of a block of keys for each warp; then the warps' partial results, of
// which a lane has at most 16 bytes' worth. As ops/attention.cuh lays them out.
int64_t scratch_bytes(const CallView& c) {
  const int64_t warps = c.program().uses.consumers / 32;
  constexpr int64_t lanes = 32, keys = 32, float_bytes = 4, unit = 4;
  const int64_t queries = c.integer("BQ");
  return std::max((queries * c.integer("D") + warps * queries * keys) * float_bytes,
                  (2 * warps * queries + warps * lanes * unit) * float_bytes);
}

}  // namespace

std::vector<Function> attention_functions() {
  return {{.name = "attention",
           .params = {dtype("Q"), dtype("K"), dtype("V"), dtype("Y"), value("rows"),
                      value("length"), integer("HQ"), integer("HKV"), integer("D"), integer("BQ"),
                      flag("causal"), number("scale")},
           .operands = {reads("q", "Q"), reads("k", "K"), reads("v", "V"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/attention.cuh"}},
           .scratch_bytes = scratch_bytes}};
}

}  // namespace maco::functions
