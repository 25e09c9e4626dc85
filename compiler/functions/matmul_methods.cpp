// The methods of matmul: their table, and what each asks of operands and tiles.
#include "compiler/functions/matmul_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler/functions/families.h"
#include "ir/check.h"
#include "ir/registry.h"

namespace maco::functions {

namespace {

int64_t few_rows(const MatmulShape& s, const cost::Machine& machine) {
  return matmul_few_rows(s.a, s.b, s.K, s.transpose_b, machine);
}
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_above(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}
bool is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// ---- few rows ---------------------------------------------------------------

std::vector<MatmulTiles> tiles_of_few(const MatmulShape& s, const MatmulMethod&,
                                      const cost::Machine&) {
  std::vector<MatmulTiles> tiles;
  const int64_t unit = matmul_column_step(s.N, s.transpose_b);
  for (int64_t bn = unit; bn <= 256 && bn < s.N + unit; bn += unit)
    tiles.push_back({power_above(s.max_rows), bn});
  return tiles;
}
std::string refuse_few(const MatmulShape& s, const MatmulMethod&, const MatmulTiles& t,
                       const cost::Machine& machine) {
  const int64_t unit = matmul_column_step(s.N, s.transpose_b);
  const int64_t few = few_rows(s, machine);
  if (s.plan_rows.hi > few)
    return fmt::format("method 'dot' takes up to {} rows, not {}", few, s.plan_rows.hi);
  if (t.BM > few || !is_power(t.BM))
    return fmt::format("a tile of method 'dot' has 1, 2, 4{} or {} rows, not {}",
                       few > 8 ? ", 8, 16" : "", few, t.BM);
  if (t.BN > 256 || t.BN % unit != 0)
    return fmt::format("a tile of this product has a multiple of {} columns, at most 256, not {}",
                       unit, t.BN);
  return "";
}

// Where a launch may take dot, a tile has whole slices of it.
std::string refuse_steps(const MatmulShape& s, const MatmulMethod& method, const MatmulTiles& t) {
  const int64_t unit = matmul_column_step(s.N, s.transpose_b);
  if (!method.dot || t.BN % unit == 0) return "";
  return fmt::format("a tile of this product has a multiple of {} columns, not {}", unit, t.BN);
}

// ---- many rows, without tensor cores ----------------------------------------

std::vector<MatmulTiles> tiles_of_blocks(const MatmulShape& s, const MatmulMethod& method,
                                         const cost::Machine& machine) {
  std::vector<MatmulTiles> tiles;
  bool any = false;
  for (int64_t bm = 16; bm <= 128 && bm < 2 * std::max<int64_t>(s.max_rows, 16); bm *= 2)
    for (int64_t bn = s.transpose_b ? 16 : matmul_slice(s.N); bn <= 128; bn *= 2)
      if (bn == 16 || bn < 2 * s.N || !any) {
        tiles.push_back({bm, bn});
        any = any || refuse_matmul(s, method, tiles.back(), machine).empty();
      }
  return tiles;
}
std::string refuse_blocks(const MatmulShape& s, const MatmulMethod& method, const MatmulTiles& t,
                          const cost::Machine& machine) {
  const auto is_extent = [](int64_t n) { return n >= 16 && n <= 128 && is_power(n); };
  if (!is_extent(t.BM) || !is_extent(t.BN))
    return fmt::format(
        "a tile of method '{}' has 16, 32, 64 or 128 rows and columns, not {} and {}",
        method.name(), t.BM, t.BN);
  if (std::string why = refuse_steps(s, method, t); !why.empty()) return why;
  if (!matmul_fits(t.BN, ir::size_of(s.b), s.transpose_b, machine.page_bytes))
    return fmt::format("a page of {} bytes has no room for a slice of {} columns",
                       machine.page_bytes, t.BN);
  return "";
}
bool holds_blocks(const CallView& c) { return c.flag("blocks"); }

// ---- many rows on tensor cores ----------------------------------------------

std::vector<MatmulTiles> tiles_on_cores(const MatmulShape& s, const MatmulMethod&,
                                        const cost::Machine&) {
  std::vector<MatmulTiles> tiles;
  for (int64_t bm = 16; bm <= 128 && (bm == 16 || bm < 2 * s.max_rows); bm *= 2)
    for (int64_t bn : {64, 128, 192, 256})
      if (bn == 64 || (bn < 2 * s.N && (bn != 192 || s.N > 128))) tiles.push_back({bm, bn});
  return tiles;
}
// Why the machine's tensor cores can't take such tiles, or "".
std::string refuse_on_cores(const MatmulShape& s, const MatmulMethod& method, const MatmulTiles& t,
                            const cost::Machine& machine) {
  const std::string& word = method.name();
  const bool eight = s.a == ir::DType::F8E4M3 || s.a == ir::DType::F8E5M2;
  if (s.a != s.b || (s.a != ir::DType::BF16 && s.a != ir::DType::F16 && !eight))
    return fmt::format(
        "method '{}' multiplies bf16, f16, f8e4m3 or f8e5m2 with the same, not {} with {}", word,
        ir::name(s.a), ir::name(s.b));
  if (eight && !s.transpose_b)
    return fmt::format("method '{}' multiplies {} only with transpose_b", word, ir::name(s.a));
  // For f8, tensor cores keep fewer bits of sums than f32 has.
  if (eight && s.y == ir::DType::F32)
    return fmt::format("method '{}' multiplies {} for results of less than 32 bits, not for f32",
                       word, ir::name(s.a));
  if (!machine.has_mma(s.a))
    return fmt::format("target '{}' has no method '{}' for {}", machine.target, word,
                       ir::name(s.a));
  const bool bulk = method.boxes;
  const int64_t sums = s.sums;
  // Each warp has whole heads. Warps share a tile's columns two by two, except in the largest tiles
  // of wgmma.
  if (s.heads > 0 &&
      (t.BM < 64 || t.BN % (s.heads * (bulk && t.BM == 128 ? 1 : 2)) != 0 || s.heads % 16 != 0))
    return fmt::format(
        "a tile of method '{}' that turns heads of {} has 64 or 128 rows and whole heads, not {} x "
        "{}",
        word, s.heads, t.BM, t.BN);
  if (s.tall && t.BM < 64)
    return fmt::format("a tile of method '{}' that appends to caches has 64 or 128 rows, not {}",
                       word, t.BM);
  if (s.sums > 1 && (t.BM < 64 || t.BN > 128))
    return fmt::format(
        "a tile of a pair of products has 64 or 128 rows and 64 or 128 columns by method '{}', not "
        "{} and {}",
        word, t.BM, t.BN);
  if (bulk && !machine.has_wgmma())
    return fmt::format("target '{}' has no method '{}'", machine.target, word);
  if (bulk && !s.all_there)
    return fmt::format(
        "method '{}' needs a temporary where dims decide the number of rows, here {} to {}", word,
        s.min_rows, s.max_rows);
  // What a tensor map can't describe.
  const int64_t chunk = 16 / ir::size_of(s.a);
  if (const int64_t row = s.transpose_b ? s.K : s.N; bulk && (s.K % chunk != 0 || row % chunk != 0))
    return fmt::format("method '{}' takes rows of whole 16 bytes, not of {} and {} elements", word,
                       s.K, row);
  const auto among = [](int64_t n, int64_t least, int64_t most) {
    return n >= least && n <= most && is_power(n);
  };
  const bool between = bulk && !eight && t.BM == 128 && t.BN == 192;
  if (!among(t.BM, 16, 128) || (!between && !among(t.BN, 64, t.BM < 64 ? 128 : 256)))
    return fmt::format(
        "a tile of method '{}' has 16, 32, 64 or 128 rows and 64, 128 or, of 64 rows and more, 256 "
        "columns{}, not {} and {}",
        word, bulk && !eight ? ", or 128 rows and 192 columns" : "", t.BM, t.BN);
  // Four warps read a whole line of b at a time if K is its slow axis.
  if (bulk && !s.transpose_b && t.BM == 64 && t.BN == 64)
    return fmt::format("method '{}' takes tiles of 64 x 64 only with transpose_b", word);
  // Threads hold the sums, and those of f8 twice.
  if (const int64_t all = t.BM * t.BN * sums; (!bulk || eight) && all > 128 * 128)
    return fmt::format("a tile of method '{}'{} has at most {} elements, not {}", word,
                       bulk ? " of f8" : "", 128 * 128, all);
  const int64_t depth = t.BK > 0 ? std::min(t.BK, s.K) : s.K;
  const int64_t blocks = ceil_div(depth, matmul_block(ir::size_of(s.a)));
  const int64_t a = matmul_held_pages(t.BM, t.BN, blocks, machine.page_bytes),
                b = matmul_held_pages(t.BN, t.BM, blocks, machine.page_bytes);
  // One more page, so that some pages are filled while others are read.
  if (a == 0 || b == 0 || a + b * sums >= machine.pages)
    return fmt::format(
        "a ring of {} pages of {} bytes has no room for a tile of {} rows and {} "
        "columns by method '{}'",
        machine.pages, machine.page_bytes, t.BM, t.BN, word);
  return refuse_steps(s, method, t);
}

// Threads hold many sums, and the operands of the next multiplications.
bool always(const CallView&) { return true; }

// Calls share code if K is whole steps of whole blocks: then they differ only in the number of
// steps.
std::vector<std::string> shared_steps(const CallView& c) {
  constexpr int64_t kSharedStep = 128;  // elements; as in ops/matmul_tensor.cuh
  if (c.integer("K") == c.integer("BK") && c.integer("K") % kSharedStep == 0) return {"K", "BK"};
  return {};
}

// ---- the table --------------------------------------------------------------

Method code(std::string name, std::string code, std::vector<std::string> takes) {
  return {.function = "matmul",
          .name = std::move(name),
          .code = std::move(code),
          .takes = std::move(takes)};
}

std::vector<MatmulMethod> built_in() {
  const MatmulMethod dot{.code = code("dot", "ops::ByDot", {"pair", "Rows", "Send", "Order"}),
                         .few = true,
                         .tiles = tiles_of_few,
                         .refuse = refuse_few,
                         .load = matmul_load_slices};
  const MatmulMethod block{.code = code("block", "ops::ByBlock", {"Order"}),
                           .blocks = true,
                           .tiles = tiles_of_blocks,
                           .refuse = refuse_blocks,
                           .load = matmul_load_slices,
                           .many_registers = holds_blocks};
  const MatmulMethod mma{
      .code = code("mma", "ops::ByMma", {"pair", "Turn", "Target", "Add", "Send", "Order"}),
      .tensor_cores = true,
      .parts = true,
      .tiles = tiles_on_cores,
      .refuse = refuse_on_cores,
      .load = matmul_load_tiles};
  MatmulMethod wgmma = mma;
  wgmma.code = code("wgmma", "ops::ByWgmma", mma.code.takes);
  wgmma.code.takes.emplace_back("halve");
  wgmma.boxes = wgmma.mates = true;
  wgmma.many_registers = always;
  wgmma.shared_over = shared_steps;
  MatmulMethod by_rows = block, by_rows_mma = mma;
  by_rows.code = code("by_rows", "ops::ByRows", block.code.takes);
  by_rows_mma.code = code("by_rows_mma", "ops::ByRowsMma", {"Order"});
  by_rows.dot = by_rows_mma.dot = true;
  by_rows_mma.parts = false;
  return {dot, block, mma, wgmma, by_rows, by_rows_mma};
}

ir::Registry<MatmulMethod>& table() {
  static ir::Registry<MatmulMethod> methods([](const MatmulMethod& m) { return m.name(); },
                                            built_in());
  return methods;
}

// Why tiles can't cover so much of K, or "".
std::string refuse_depth(const MatmulShape& s, const MatmulMethod& method, int64_t depth) {
  if (!method.parts)
    return fmt::format("a tile of method '{}' has all of K, {} elements, not {}", method.name(),
                       s.K, depth);
  if (s.sums > 1)
    return fmt::format("a tile of a pair of products has all of K, {} elements, not {}", s.K,
                       depth);
  if (s.whole)
    return fmt::format("a tile of a product with stages has all of K, {} elements, not {}", s.K,
                       depth);
  if (s.min_rows != s.max_rows)
    return fmt::format("tiles share K where no dim decides the rows, not of {} to {} rows",
                       s.min_rows, s.max_rows);
  const int64_t block = matmul_block(ir::size_of(s.a));
  if (depth % block != 0 || ceil_div(s.K, depth) > kMostMatmulParts)
    return fmt::format(
        "a tile has all of K or a multiple of {} elements, at least 1/{} of {}, not {}", block,
        kMostMatmulParts, s.K, depth);
  return "";
}

}  // namespace

std::vector<Method> matmul_methods() {
  std::vector<Method> methods;
  for (const MatmulMethod& method : built_in()) methods.push_back(method.code);
  return methods;
}

std::vector<const MatmulMethod*> matmul_method_rows() {
  std::vector<const MatmulMethod*> rows;
  table().each([&](const MatmulMethod& method) { rows.push_back(&method); });
  return rows;
}
const MatmulMethod* find_matmul_method(std::string_view name) { return table().find(name); }
const MatmulMethod& matmul_method(std::string_view name) {
  const MatmulMethod* method = find_matmul_method(name);
  MACO_CHECK(method, std::string(name));
  return *method;
}

std::string add_matmul_method(MatmulMethod method) {
  if (!method.tiles || !method.refuse)
    return fmt::format("method '{}' of 'matmul': it doesn't say which tiles it takes",
                       method.name());
  if (std::string why = register_method(method.code); !why.empty()) return why;
  const std::string name(method.name());
  MACO_CHECK(table().add(std::move(method)), name);
  return "";
}

std::string refuse_matmul(const MatmulShape& s, const MatmulMethod& method, MatmulTiles t,
                          const cost::Machine& machine) {
  if (matmul_parts(s.K, t) > 1)
    if (std::string why = refuse_depth(s, method, t.BK); !why.empty()) return why;
  return method.refuse(s, method, t, machine);
}

std::vector<MatmulTiles> matmul_candidates(const MatmulShape& s, const MatmulMethod& method,
                                           const cost::Machine& machine) {
  std::vector<MatmulTiles> tiles = method.tiles(s, method, machine);
  std::erase_if(
      tiles, [&](const MatmulTiles& t) { return !refuse_matmul(s, method, t, machine).empty(); });
  return tiles;
}

const MatmulMethod& choose_matmul_method(const MatmulShape& s, const cost::Machine& machine) {
  const MatmulMethod& wgmma = matmul_method("wgmma");
  const auto takes = [&](const MatmulMethod& method) {
    return !matmul_candidates(s, method, machine).empty();
  };
  // This includes few rows of f8: ordinary arithmetic takes each element apart, which takes longer
  // than memory does (docs/notebook/products.md).
  if (ir::size_of(s.a) == 1 && takes(wgmma)) return wgmma;
  // A large b[K,N]: no box brings it to dot (docs/notebook/single-ops.md).
  constexpr int64_t kMuch = 16 * 1024 * 1024;  // bytes
  if (!s.transpose_b && s.N * s.K * ir::size_of(s.b) >= kMuch && takes(wgmma)) return wgmma;
  if (s.plan_rows.hi <= few_rows(s, machine)) return matmul_method("dot");
  const bool many = s.plan_rows.lo > few_rows(s, machine);
  // A method that the machine has for these types, and that takes some tile.
  if (takes(wgmma)) return wgmma;
  const MatmulMethod& mma = matmul_method(many ? "mma" : "by_rows_mma");
  return takes(mma) ? mma : matmul_method(many ? "block" : "by_rows");
}
const MatmulMethod& method_of_sent_tiles() { return matmul_method("wgmma"); }

}  // namespace maco::functions
