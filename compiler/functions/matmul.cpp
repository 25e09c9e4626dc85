// matmul: a tile of a b, all of K, with an epilogue.
#include "compiler/functions/matmul.h"

#include <algorithm>

#include "compiler/functions/families.h"

namespace maco::functions {

cost::Work matmul_work(const MatmulTile& t, const cost::Machine& machine) {
  const auto high = static_cast<double>(std::min(t.BM, t.rows)), wide = static_cast<double>(t.BN),
             k = static_cast<double>(t.K);
  const bool many = t.rows > kFewRows;
  cost::Work work{.fixed_microseconds = 0.5};
  // Register blocks work on all rows of a tile.
  work.multiply_adds = (many ? static_cast<double>(t.BM) : high) * wide * k;
  work.bytes = k * (wide * static_cast<double>(t.b_bytes) + high * static_cast<double>(t.a_bytes));
  // Tiles of many rows meet in a GPU's cache.
  if (many && machine.arch != 0) work.bytes /= 2;
  return work;
}

std::vector<Function> matmul_functions() {
  return {{.name = "matmul",
           .params = {dtype("X"), dtype("W"), dtype("Y"), value("rows"), value("plan_rows"),
                      flag("few_rows"), integer("N"), integer("K"), integer("BM"), integer("BN"),
                      flag("transpose_b"), body("epilogue")},
           .operands = {reads("a"), loads("b"), writes("y"), reads("more", Count::Many)},
           .source = {{"rows.cuh", "ops/matmul.cuh"}},
           // Rows of a, and sums: as much as there is (MatmulPages::kStageBytes).
           .scratch_bytes = [](const CallView&) { return int64_t{16384}; }}};
  // `work` is unset: the schedule counts a product's bytes, like those of any other task. What its
  // arithmetic takes decides between tiles only, until a measurement shows that schedules gain.
}

}  // namespace maco::functions
