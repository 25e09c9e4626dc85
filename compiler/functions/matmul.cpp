// matmul: a tile of a b, all of K, with an epilogue.
#include "compiler/functions/matmul.h"

#include <algorithm>

#include "compiler/functions/families.h"

namespace maco::functions {

std::string_view name(MatmulMethod method) {
  constexpr std::string_view words[kMatmulMethods] = {"dot", "block", "by_rows"};
  return words[static_cast<size_t>(method)];
}

int64_t matmul_slice(int64_t N) { return N >= 4096 ? 64 : N >= 1024 ? 32 : 16; }
int64_t matmul_column_step(int64_t N, bool transpose_b) {
  return transpose_b ? 8 : matmul_slice(N);
}
bool matmul_fits(int64_t BN, int64_t b_bytes, bool transpose_b, int64_t page_bytes) {
  constexpr int64_t kLeastBytes = 48, kLeastRows = 8;  // of a column; of b
  return transpose_b ? page_bytes / BN >= kLeastBytes : page_bytes / (BN * b_bytes) >= kLeastRows;
}

cost::Work matmul_work(const MatmulTile& t, const cost::Machine& machine) {
  const auto high = static_cast<double>(std::min(t.BM, t.rows)), wide = static_cast<double>(t.BN),
             k = static_cast<double>(t.K);
  const bool many = t.method != MatmulMethod::Dot && t.rows > kDotRows;
  cost::Work work{.fixed_microseconds = 0.5};
  // Register blocks work on all rows of a tile.
  work.multiply_adds = (many ? static_cast<double>(t.BM) : high) * wide * k;
  work.bytes = k * (wide * static_cast<double>(t.b_bytes) + high * static_cast<double>(t.a_bytes));
  // Tiles of many rows meet in a GPU's cache.
  if (many && machine.arch != 0) work.bytes /= 2;
  return work;
}

namespace {
std::vector<std::string> methods() {
  std::vector<std::string> words;
  for (size_t i = 0; i < kMatmulMethods; ++i)
    words.emplace_back(name(static_cast<MatmulMethod>(i)));
  return words;
}

cost::Work work(const CallView& c, const ir::Task& task, const cost::Machine& machine) {
  MatmulTile t{.rows = c.range("rows").hi,
               .K = c.integer("K"),
               .BM = c.integer("BM"),
               .BN = c.integer("BN"),
               .a_bytes = ir::size_of(c.dtype("X")),
               .b_bytes = ir::size_of(c.dtype("W"))};
  for (size_t i = 0; i < kMatmulMethods; ++i)
    if (name(static_cast<MatmulMethod>(i)) == c.word("method"))
      t.method = static_cast<MatmulMethod>(i);
  // Of the last column of tiles, what there is.
  if (!task.accesses.empty()) {
    const ir::Region& y = task.accesses.back().region;
    t.BN = std::min(t.BN, y.c1 - y.c0);
  }
  return matmul_work(t, machine);
}
}  // namespace

std::vector<Function> matmul_functions() {
  return {{.name = "matmul",
           .params = {dtype("X"), dtype("W"), dtype("Y"), value("rows"), value("plan_rows"),
                      word("method", "ops::MatmulMethod", methods()), integer("slice"),
                      integer("N"), integer("K"), integer("BM"), integer("BN"), flag("transpose_b"),
                      body("epilogue")},
           .operands = {reads("a", "X"), loads("b", "W"), writes("y", "Y"),
                        reads("more", "", Count::Many)},
           .source = {{"rows.cuh", "ops/matmul.cuh"}},
           // Rows of a, and sums: as much as there is (MatmulPages::kStageBytes).
           .scratch_bytes = [](const CallView&) { return int64_t{16384}; },
           .work = work}};
}

}  // namespace maco::functions
