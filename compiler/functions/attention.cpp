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

// Of keys and values those that count in an ordinary launch: where only the launch knows how many,
// half of the most.
cost::Work work(const CallView& c, const ir::Task& task, const cost::Machine&) {
  cost::Work work = cost::streaming(c.program(), task);
  const ir::Interval length = c.range("length");
  const double count = static_cast<double>(length.lo) / 2 + static_cast<double>(length.hi) / 2;
  for (size_t i = 1; i + 1 < task.accesses.size(); ++i) {
    const ir::Region& r = task.accesses[i].region;
    const auto rows = static_cast<double>(r.r1 - r.r0),
               row = static_cast<double>((r.c1 - r.c0) * ir::size_of(c.program()[r.buffer].dtype));
    work.bytes -= std::max(rows - count, 0.0) * row;
  }
  return work;
}

}  // namespace

std::vector<Function> attention_functions() {
  return {{.name = "attention",
           .params = {dtype("Q"), dtype("K"), dtype("V"), dtype("Y"), value("rows"),
                      value("length"), integer("HQ"), integer("HKV"), integer("D"), integer("BQ"),
                      flag("causal"), number("scale")},
           .operands = {reads("q", "Q"), reads("k", "K"), reads("v", "V"), writes("y", "Y")},
           .source = {{"rows.cuh", "ops/attention.cuh"}},
           .scratch_bytes = scratch_bytes,
           .work = work}};
}

}  // namespace maco::functions
