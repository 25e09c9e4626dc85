// matmul: one tile of a * b, over all of K or a part of it, with an epilogue.
#include "compiler/functions/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "compiler/functions/exchange.h"
#include "compiler/functions/families.h"
#include "compiler/functions/matmul_method.h"

namespace maco::functions {

namespace {
constexpr std::string_view kMatmul = "matmul";

}  // namespace

int64_t matmul_few_rows(ir::DType a, ir::DType b, int64_t K, bool transpose_b,
                        const cost::Machine& machine) {
  const bool on_cores = a == b && (a == ir::DType::BF16 || a == ir::DType::F16) && transpose_b &&
                        K % 8 == 0 && (machine.arch >= 80 || machine.arch == 0);
  return on_cores ? kMostFewRows : 8;
}
int64_t matmul_slice(int64_t N) { return N >= 4096 ? 64 : N >= 1024 ? 32 : 16; }
int64_t matmul_column_step(int64_t N, bool transpose_b) {
  return transpose_b ? 8 : matmul_slice(N);
}
bool matmul_fits(int64_t BN, int64_t b_bytes, bool transpose_b, int64_t page_bytes) {
  constexpr int64_t kLeastBytes = 48, kLeastRows = 8;  // of a column; of b
  return transpose_b ? page_bytes / BN >= kLeastBytes : page_bytes / (BN * b_bytes) >= kLeastRows;
}

namespace {
// Rows of a box, where a block doesn't fill its last page.
constexpr int64_t kBoxRows = 64;
}  // namespace

int64_t matmul_block_pages(int64_t rows, int64_t page_bytes) {
  const int64_t lines = page_bytes / ir::Load::kLine;
  if (lines < 1 || (rows > lines && rows % lines != 0 && rows % kBoxRows != 0)) return 0;
  return (rows + lines - 1) / lines;
}

int64_t matmul_held_pages(int64_t rows, int64_t other, int64_t blocks, int64_t page_bytes) {
  const int64_t lines = page_bytes / ir::Load::kLine;
  const int64_t pages = matmul_block_pages(rows, page_bytes);
  if (pages == 0 || matmul_block_pages(other, page_bytes) == 0) return 0;
  const auto in_page = [&](int64_t n) { return n <= lines ? lines / n : 1; };  // blocks
  const int64_t own = in_page(rows);
  const int64_t run = std::min(std::max(own, in_page(other)), blocks);
  return pages * ((run + own - 1) / own);
}

int64_t matmul_halves_pages(int64_t BM, int64_t BN, int64_t page_bytes, int64_t pages) {
  constexpr int64_t kSumBytes = 4, kLeastRows = 64, kLeastCols = 128;
  const int64_t needed = (BM * BN / 2 * kSumBytes + page_bytes - 1) / page_bytes;
  return BM >= kLeastRows && BN >= kLeastCols && needed <= pages ? needed : 0;
}

std::optional<ir::Load::Box> matmul_few_box(const MatmulLoads& m) {
  if (!m.method->few || !m.transpose_b || m.K * m.b_bytes % 16 != 0) return std::nullopt;
  // The depth is whole steps of a warp, whose lanes take up to 16 bytes each. It is as large as the
  // page, the staged rows of a and a tensor map allow. The box has all columns of the slice.
  const int64_t step = 32 * std::min<int64_t>(8, 16 / m.b_bytes), parts = m.sums;
  const bool on_cores = m.few_rows == kMostFewRows;
  constexpr int64_t kStageBytes = 16384;
  int64_t cols = m.BM <= (on_cores ? 16 : 2) ? 16 : 32;
  while (cols > m.page_bytes / (step * m.b_bytes)) cols /= 2;
  if (cols < parts) return std::nullopt;
  while (cols > parts && m.BN * parts % cols != 0) cols /= 2;
  int64_t depth = std::min(m.page_bytes / (cols * m.b_bytes), ir::Load::kMostBoxRow / m.b_bytes);
  if (!on_cores) depth = std::min(depth, kStageBytes / (m.BM * m.a_bytes));
  // A thread keeps its part of a in registers.
  if (m.BM > 16) depth = std::min<int64_t>(depth, 256);
  depth = std::min(m.K, depth / step * step);
  if (cols % parts != 0 || depth * m.b_bytes <= ir::Load::kLine) return std::nullopt;
  return ir::Load::Box{cols / parts, depth, m.K};
}

namespace {
// For a matmul in line: how many elements of K eight warps take at a time, and the bytes of sums.
constexpr int64_t kLineRun = 2048, kLineSums = 8192;
// Bytes of the longest row that fits in the scratch memory.
constexpr int64_t kMostRow = 65536;
// Whether a few warps share a column and a page holds several columns.
bool are_shared(int64_t K, int64_t page_bytes) {
  constexpr int64_t kMostPage = 32768;  // larger ones need too many registers of a thread
  return K >= kLineRun && page_bytes <= kMostPage && page_bytes % (K * 2) == 0 &&
         page_bytes / (K * 2) >= 4;
}
// Whether a column ends in the middle of a round of the warps. Threads hold their parts of two
// columns.
bool are_halved(int64_t K) {
  return K % kLineRun == kLineRun / 2 && K > kLineRun && K < 4 * kLineRun;
}
}  // namespace

int64_t matmul_line_columns(const MatmulLoads& m) {
  constexpr int64_t kBytes = 2, kStep = 256, kMostOwn = 8, kWarps = 8, kShared = 4;  // pages
  if (!m.lone || !m.method->few || !m.transpose_b || m.few_rows != kMostFewRows ||
      m.b_bytes != kBytes || m.K < 1 || m.page_bytes < 1)
    return 0;
  // Whole pages and whole columns (LinePages).
  const int64_t parts = m.sums;
  int64_t cols = 0;
  if (m.K < kLineRun) {
    if (m.K % kStep != 0 || kLineRun % m.K != 0 || m.page_bytes % (m.K * kBytes) != 0) return 0;
    cols = std::max<int64_t>(kWarps, m.page_bytes / (m.K * kBytes));
    if (cols * m.K * kBytes % m.page_bytes != 0 || cols / kWarps * parts > kMostOwn) return 0;
  } else if (m.K % kLineRun != 0 && !are_halved(m.K)) {
    return 0;
  } else if (m.K * kBytes > kMostRow || m.page_bytes % (kLineRun * kBytes) != 0 ||
             m.N % kWarps != 0) {  // whatever a slice is; a pair has less
    return 0;
  } else if (are_shared(m.K, m.page_bytes)) {
    const int64_t page = m.page_bytes / (m.K * kBytes);
    if (page > kWarps || kWarps % page != 0) return 0;
    cols = std::min(kWarps, page * kShared / parts);
  } else {
    const int64_t page = m.page_bytes / (kStep * kBytes), column = m.K / kStep,
                  least = page / std::gcd(page, column), pages = least * column / page * parts;
    const bool twice = !are_halved(m.K) && (least * parts == 1 || (pages <= 3 && pages % 2 == 1));
    cols = twice ? 2 * least : least;
  }
  return m.N % cols == 0 && m.BN % cols == 0 ? cols : 0;
}
bool matmul_better_in_line(const MatmulLoads& m, const cost::Machine& machine) {
  // Shared memory that other tasks may want as scratch memory, as users' kernels do, and the heads'
  // bytes.
  constexpr int64_t kOthers = 49152, kHeads = 6144;
  const int64_t columns = matmul_line_columns(m), parts = m.sums, column = m.K * m.b_bytes;
  if (!machine.has_boxes() || columns == 0 ||
      matmul_line_scratch(m.K, machine) > matmul_most_scratch(machine))
    return false;
  // A slice of short columns is taken as a whole, so that the ring has to be larger.
  return m.K >= kLineRun ||
         columns * parts * column + m.page_bytes <=
             machine.shared_bytes - kHeads - std::max(kOthers, matmul_most_scratch(machine));
}
int64_t matmul_line_scratch(int64_t K, const cost::Machine& machine) {
  constexpr int64_t kMostHeld = 8 * kLineRun;
  if (machine.arch == 0) return K * 2;  // one thread adds up and has few registers
  return kLineSums + (K <= kMostHeld && !are_shared(K, machine.page_bytes) ? 0 : K * 2);
}
int64_t matmul_most_scratch(const cost::Machine& machine) {
  return std::min(kMostRow, machine.shared_bytes * 3 / 8);
}

bool matmul_takes_blocks(const MatmulLoads& m, bool same_types, const cost::Machine& machine) {
  if (!m.method->blocks || !same_types || !m.all_there || !machine.has_boxes()) return false;
  // What a tensor map can describe.
  constexpr int64_t kUnit = 16;  // bytes
  if (m.K * m.a_bytes % kUnit != 0 || (!m.transpose_b && m.N * m.b_bytes % kUnit != 0))
    return false;
  const int64_t block = matmul_block(m.a_bytes), blocks = (m.K + block - 1) / block;
  // Across K a line has as many rows as the block has elements.
  if (!m.transpose_b && m.BN % block != 0) return false;
  const int64_t a = matmul_held_pages(m.BM, m.BN, blocks, machine.page_bytes),
                b = matmul_held_pages(m.BN, m.BM, blocks, machine.page_bytes);
  // One more page, so that some pages are filled while others are read.
  return a > 0 && b > 0 && a + b < machine.pages;
}

bool leave_blocks(ir::Program& program) {
  bool any = false;
  for (ir::Call& call : program.calls) {
    if (call.function != kMatmul) continue;
    const auto flag = std::find_if(call.params.begin(), call.params.end(),
                                   [](const ir::Param& p) { return p.name == "blocks"; });
    if (flag == call.params.end() || !std::get<bool>(flag->value)) continue;
    flag->value = false;
    std::vector<ir::Load> loads;
    for (ir::Load load : call.loads) {
      const auto rule = find_function(call)->loads({program, call}, load.operand);
      if (!rule) continue;
      load.pages = rule->pages;
      load.box = rule->box;
      loads.push_back(load);
    }
    call.loads = std::move(loads);
    any = true;
  }
  return any;
}

std::optional<LoadRule> matmul_load(const MatmulLoads& m, size_t operand) {
  return m.method->load ? m.method->load(m, operand) : std::nullopt;
}

std::optional<LoadRule> matmul_load_slices(const MatmulLoads& m, size_t operand) {
  if (m.blocks) return matmul_load_tiles(m, operand);
  if (operand == 0) return std::nullopt;
  LoadRule rule;
  if (m.in_line) {
    const int64_t columns = matmul_line_columns(m);
    if (columns == 0) return std::nullopt;
    // A slice of short columns is taken as a whole.
    if (m.K < kLineRun) rule.pages = columns * m.K * m.b_bytes / m.page_bytes;
  }
  if (m.boxes) rule.box = matmul_few_box(m);
  return rule;
}

std::optional<LoadRule> matmul_load_tiles(const MatmulLoads& m, size_t operand) {
  const int64_t rows = operand == 0 ? m.BM : m.BN;
  const int64_t block = matmul_block(m.a_bytes), depth = m.BK > 0 ? m.BK : m.K;
  const int64_t held = matmul_held_pages(rows, operand == 0 ? m.BN : m.BM,
                                         (depth + block - 1) / block, m.page_bytes);
  LoadRule rule{.pages = held, .whole_pages = true};
  // What a mate sends comes when neither operand is held.
  if (m.mates && operand == 0)
    rule.pages = std::max(
        held, matmul_halves_pages(m.BM, m.BN, m.page_bytes, INT64_MAX) -
                  matmul_held_pages(m.BN, m.BM, (depth + block - 1) / block, m.page_bytes));
  // Boxes of a have the maximum number of rows. Nobody reads the sums of rows that a launch doesn't
  // have.
  if ((!m.method->boxes && !m.blocks) || (operand == 0 && !m.all_there)) return rule;
  // As many lines of a page as a box can fill. Where a launch may have fewer rows, boxes have so
  // few rows that little is copied in vain.
  constexpr int64_t kSomeRows = 32;
  const bool across = operand == 1 && !m.transpose_b;
  const int64_t lines = m.page_bytes / ir::Load::kLine,
                whole = operand == 0 && !m.fixed_rows       ? std::min(rows, kSomeRows)
                        : rows > lines && rows % lines != 0 ? kBoxRows
                                                            : rows;
  rule.box = {std::min(across ? block : whole, lines), block, across ? m.N : m.K};
  return rule;
}

cost::Work matmul_work(const MatmulTile& t, const cost::Machine& machine) {
  if (t.method->work) return t.method->work(t, machine);
  const auto high = static_cast<double>(std::min(t.BM, t.rows)),
             wide = static_cast<double>(t.sums * t.BN), k = static_cast<double>(t.K);
  const bool cores = t.method->tensor_cores;
  const bool few = t.method->few || (t.rows <= t.few_rows && (t.method->takes_dot() || !cores));
  cost::Work work{.fixed_microseconds = 0.5};
  work.bytes = k * (wide * static_cast<double>(t.b_bytes) + high * static_cast<double>(t.a_bytes));
  if (few) {
    // On tensor cores where Dot takes up to kMostFewRows.
    if (t.few_rows == kMostFewRows)
      work.matrix_multiply_adds = (high > 16 ? 32 : 16) * wide * k;
    else
      work.multiply_adds = high * wide * k;
    return work;
  }
  // On tensor cores all rows of a tile come through pages.
  if (cores) work.bytes += k * static_cast<double>(t.a_bytes) * (static_cast<double>(t.BM) - high);
  // All rows are computed.
  const auto high_tile = static_cast<double>(t.BM);
  const double products = high_tile * wide * k;
  // Elements of 8 bits are multiplied twice as fast.
  if (cores)
    work.matrix_multiply_adds = products * static_cast<double>(t.a_bytes) / 2;
  else
    work.multiply_adds = products;
  // Without tensor cores a thread computes a block of the tile, and reads the block's rows and
  // columns for each step of K. Tiles of 32 x 32 took 2.7 times as long as tiles of 128 x 128 at
  // 4,096 each way (docs/benchmarks/logs/operands-h200-2026-11-28.txt).
  if (!cores && machine.arch != 0) {
    constexpr double kThreads = 16, kReads = 2;  // along either side; products in a read's time
    work.multiply_adds *= 1 + kReads * kThreads * (1 / high_tile + 1 / wide);
  }
  if (machine.arch != 0) work.bytes *= kFromCache * (high_tile * wide > 128 * 128 ? kLargeTile : 1);
  return work;
}

namespace {
const MatmulMethod& method_in(const CallView& c) { return matmul_method(c.word("method")); }
bool loads_apart(const CallView& c) { return method_in(c).boxes; }
bool wants_registers(const CallView& c) {
  const MatmulMethod& method = method_in(c);
  return method.many_registers && method.many_registers(c);
}
std::vector<std::string> shared_over(const CallView& c) {
  const MatmulMethod& method = method_in(c);
  return method.shared_over ? method.shared_over(c) : std::vector<std::string>();
}

// With few rows: a, the result, and the epilogue's operands at each element.
bool takes_packets(const CallView& c, size_t operand) {
  if (!method_in(c).few || c.integer("K") % 8 != 0 ||
      c.range("plan_rows").lo != c.range("plan_rows").hi)
    return false;
  const Function& f = *find_function(c.call());
  const size_t more = f.first_of_many();
  // A warp that norms one of several rows polls the whole row at once where it can hold it (Walk in
  // rows.cuh). For longer rows it would wait for one vector after the other.
  constexpr int64_t kHeldByWarp = 32 * 32;
  if (operand == 0 && c.has("norm") && c.range("plan_rows").hi > 1 && c.integer("K") > kHeldByWarp)
    return false;
  if (operand < more) return f.operands[operand].packets;
  for (const ir::Param& p : c.call().params)
    if (const auto* body = std::get_if<ir::BodyParam>(&p.value))
      return body->operands[operand - more + body->accumulators()].spread == ir::Spread::Full;
  return false;
}

std::optional<LoadRule> load_rule(const CallView& c, size_t operand) {
  return matmul_load(
      {.method = &method_in(c),
       .N = c.integer("N"),
       .K = c.integer("K"),
       .BM = c.integer("BM"),
       .BN = c.integer("BN"),
       .BK = c.integer("BK"),
       .transpose_b = c.flag("transpose_b"),
       .fixed_rows = c.range("rows").lo == c.range("rows").hi,
       .all_there = c.range("rows").lo == c.range("rows").hi ||
                    c.program()[c.call().operands[0]].kind == ir::BufferKind::Temp,
       .page_bytes = c.program().uses.page_bytes,
       .a_bytes = ir::size_of(c.dtype("X")),
       .b_bytes = ir::size_of(c.dtype("W")),
       .few_rows = c.integer("few_rows"),
       .sums = c.has("pair") ? 2 : 1,
       .lone = c.range("rows") == ir::Interval{1, 1} && c.range("plan_rows") == ir::Interval{1, 1},
       .boxes = c.flag("boxes"),
       .in_line = c.flag("in_line"),
       .mates = c.has("halve"),
       .blocks = c.flag("blocks")},
      operand);
}

// Staged rows of a, and sums: as much as there is (MatmulPages::kStageBytes), or what a row in line
// takes.
int64_t scratch_bytes(const CallView& c) {
  constexpr int64_t kLeast = 16384;
  const cost::Machine* machine = cost::find_machine(c.program().target, c.program().board);
  if (!c.flag("in_line") || !machine) return kLeast;
  return std::max(kLeast, matmul_line_scratch(c.integer("K"), *machine));
}

cost::Work work(const CallView& c, const ir::Task& task, const cost::Machine& machine) {
  MatmulTile t{.method = &method_in(c),
               .rows = c.typical("rows"),
               .K = c.integer("BK"),
               .BM = c.integer("BM"),
               .BN = c.integer("BN"),
               .a_bytes = ir::size_of(c.dtype("X")),
               .b_bytes = ir::size_of(c.dtype("W")),
               .few_rows = c.integer("few_rows"),
               .sums = c.has("pair") ? 2 : 1};
  // The last column of tiles may be narrower. A tile whose rows a launch doesn't have returns at
  // once.
  if (!task.accesses.empty() && !c.has("halve")) {
    const ir::Region &a = task.accesses.front().region, &y = task.accesses.back().region;
    int64_t columns = y.c1 - y.c0;
    const bool appends = c.has("append");
    if (appends) {  // to y and caches, side by side
      columns = 0;
      for (const ir::Access& to : task.accesses)
        if (to.writes()) columns += to.region.c1 - to.region.c0;
    }
    t.BN = std::min(t.BN, columns);
    if (cost::typical_rows(c.program(), appends ? a : y) == 0) return {.fixed_microseconds = 0.5};
  }
  return matmul_work(t, machine);
}
}  // namespace

std::vector<Function> matmul_functions() {
  return {{
      .name = std::string(kMatmul),
      .params = {dtype("X"), dtype("W"), dtype("Y"), value("rows"), value("plan_rows"),
                 method("method"), integer("slice"), integer("few_rows"), integer("N"),
                 integer("K"), integer("BM"), integer("BN"), integer("BK"), flag("transpose_b"),
                 flag("boxes"), flag("in_line"), flag("blocks"), body("epilogue")},
      .operands = {in_packets(loads("a", "X", Loaded::Sometimes)),
                   loads("b", "W", Loaded::Sometimes), in_packets(writes("y", "Y")),
                   in_packets(reads("more", "", Count::Many))},
      .source = {{"rows.cuh", "vectors.cuh", "tensor_cores.cuh", "thread_tile.cuh",
                  "ops/matmul.cuh", "ops/matmul_row.cuh", "ops/matmul_line.cuh",
                  "ops/matmul_few.cuh", "ops/matmul_block.cuh", "ops/matmul_few_mma.cuh",
                  "ops/matmul_tensor.cuh", "ops/matmul_ways.cuh"}},
      .slots = {{"Rows", "ops::PlainRows"},
                {"Turn", "ops::NoTurn"},
                {"Target", "ops::ToResult"},
                {"Add", "ops::NoAddition"},
                {"Send", "ops::NoSend"},
                {"Order", "ops::TilesInOrder"}},
      .asks = {"pair", "halve"},
      .loads = load_rule,
      .loads_apart = loads_apart,
      .shared_over = shared_over,
      .many_registers = wants_registers,
      .takes_packets = takes_packets,
      .scratch_bytes = scratch_bytes,
      .work = work,
  }};
}

std::vector<Stage> matmul_stages() {
  std::vector<std::string> modes, reductions;
  for (size_t i = 0; i < kPeerModes; ++i) modes.emplace_back(name(static_cast<PeerMode>(i)));
  for (size_t i = 0; i < kReductions; ++i)
    reductions.emplace_back(ir::name(static_cast<ir::Reduction>(i)));
  const std::string of(kMatmul);
  return {
      {.function = of, .name = "pair", .inputs = {loads("other", "W")}},
      {.function = of,
       .name = "norm",
       .params = {dtype("G"), number("eps")},
       .inputs = {reads("norm", "G")},
       .source = {{"ops/matmul_norm.cuh"}},
       .fills = {{"Rows", "ops::NormRows"}},
       .beside = {"pair"}},
      {.function = of,
       .name = "turn",
       .params = {integer("D"), integer("turned_begin"), integer("turned_end"),
                  flag("interleaved")},
       .inputs = {reads("sines", "f32")},
       .source = {{"ops/matmul_turn.cuh"}},
       .fills = {{"Turn", "ops::TurnHeads"}}},
      {.function = of,
       .name = "append",
       .params = {value("append_at"), integer("append_begin"), integer("append_next")},
       .results = {writes("cache", "Y"), writes("next_cache", "Y")},
       .source = {{"ops/matmul_append.cuh"}},
       .fills = {{"Target", "ops::ToCaches"}},
       .beside = {"turn"}},
      {.function = of,
       .name = "send",
       .params = {integer("ranks"), integer("T"), integer("stride"), integer("slot_div"),
                  word("mode", "ops::PeerMode", std::move(modes)), flag("packets"), dtype("S"),
                  flag("behind")},
       .results = {writes("slots", "S")},
       .headers_before = {"ops/collectives.cuh"},
       .source = {{"ops/matmul_gather.cuh", "ops/matmul_send.cuh"}},
       .fills = {{"Send", "ops::SendTiles"}, {"Order", "ops::OrderOfSent"}},
       .change =
           [](Function& f) {
             f.sends = [](const CallView& c) { return c.flag("behind"); };
             f.touches = push_touches;
           }},
      {.function = of,
       .name = "add",
       .params = {word("reduce", "ops::Reduction", std::move(reductions))},
       .results = {reads("parts", "Y"), writes("own", "Y")},
       .source = {{"ops/matmul_gather.cuh", "ops/matmul_add.cuh"}},
       .fills = {{"Add", "ops::AddParts"}, {"Order", "ops::OwnRowsFirst"}},
       .beside = {"send"},
       .needs = "send"},
      {.function = of,
       .name = "gather",
       .params = {integer("ranks"), integer("T")},
       .source = {{"ops/matmul_gather.cuh"}},
       .fills = {{"Order", "ops::OwnRowsFirst"}},
       .beside = {"pair"},
       .change = [](Function& f) { f.own_rows_first = true; }},
      {.function = of,
       .name = "halve",
       .source = {{"ops/matmul_halve.cuh"}},
       .beside = {"send"},
       .change = [](Function& f) { f.mates = true; }},
  };
}

}  // namespace maco::functions
