#include "compiler/ops/matmul_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/rowwise.h"
#include "ir/check.h"

namespace maco::ops {

using functions::MatmulMethod;

namespace {

int64_t few_rows(const MatmulShape& s, const cost::Machine& machine) {
  return functions::matmul_few_rows(s.a, s.b, s.K, s.transpose_b, machine);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t power_above(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// How much longer memory takes for a tile of few rows whose boxes don't fill their pages. Matmuls
// of 32 rows in boxes of 4 KB, a quarter of a page, took about twice as long on as many SMs
// (computed from docs/benchmarks/logs/few-rows-sent-2026-11-28.txt).
double small_boxes(const MatmulShape& s, MatmulMethod method, MatmulTiles t,
                   const cost::Machine& machine) {
  const auto box = functions::matmul_few_box({.method = method,
                                              .N = s.N,
                                              .K = s.K,
                                              .BM = t.BM,
                                              .BN = t.BN,
                                              .transpose_b = s.transpose_b,
                                              .page_bytes = machine.page_bytes,
                                              .a_bytes = ir::size_of(s.a),
                                              .b_bytes = ir::size_of(s.b),
                                              .few_rows = few_rows(s, machine),
                                              .paired = s.sums > 1});
  if (!box || !machine.has_boxes()) return 1;
  constexpr double kOfEach = 1.0 / 3;
  const auto bytes = static_cast<double>(box->rows * box->cols * ir::size_of(s.b) * s.sums);
  return 1 + kOfEach * (static_cast<double>(machine.page_bytes) / bytes - 1);
}

// Microseconds of the SM with the most tiles.
double estimate(const MatmulShape& s, MatmulMethod method, int64_t rows, MatmulTiles t,
                const cost::Machine& m, int32_t sms) {
  const int64_t tiles = ceil_div(rows, t.BM) * ceil_div(s.N, t.BN) * matmul_parts(s.K, t);
  cost::Work work = functions::matmul_work({.method = method,
                                            .rows = rows,
                                            .K = t.BK > 0 ? t.BK : s.K,
                                            .BM = t.BM,
                                            .BN = t.BN,
                                            .a_bytes = ir::size_of(s.a),
                                            .b_bytes = ir::size_of(s.b),
                                            .few_rows = few_rows(s, m),
                                            .paired = s.sums > 1},
                                           m);
  work.bytes *= small_boxes(s, method, t, m);
  return static_cast<double>(ceil_div(tiles, sms)) * cost::microseconds(work, m, sms);
}

bool is_power(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::vector<MatmulTiles> candidates_of(const MatmulShape& s, MatmulMethod method,
                                       const cost::Machine& machine) {
  std::vector<MatmulTiles> candidates;
  const auto consider = [&](int64_t bm, int64_t bn) {
    if (refuse_matmul(s, method, {bm, bn}, machine).empty()) candidates.push_back({bm, bn});
  };
  if (method == MatmulMethod::Dot) {
    const int64_t unit = functions::matmul_column_step(s.N, s.transpose_b);
    for (int64_t bn = unit; bn <= 256 && bn < s.N + unit; bn += unit)
      consider(power_above(s.max_rows), bn);
    return candidates;
  }
  if (functions::on_tensor_cores(method)) {
    for (int64_t bm = 16; bm <= 128 && (bm == 16 || bm < 2 * s.max_rows); bm *= 2)
      for (int64_t bn : {64, 128, 192, 256})
        if (bn == 64 || (bn < 2 * s.N && (bn != 192 || s.N > 128))) consider(bm, bn);
    return candidates;
  }
  for (int64_t bm = 16; bm <= 128 && bm < 2 * std::max<int64_t>(s.max_rows, 16); bm *= 2)
    for (int64_t bn = s.transpose_b ? 16 : functions::matmul_slice(s.N); bn <= 128; bn *= 2)
      if (bn == 16 || bn < 2 * s.N || candidates.empty()) consider(bm, bn);
  return candidates;
}

}  // namespace

bool has_all_rows(const ir::Tensor& a) {
  return a.kind == ir::TensorKind::Temp || a.shape[0].is_constant();
}

MatmulMethod choose_matmul_method(const MatmulShape& s, const cost::Machine& machine) {
  // This includes few rows of f8: ordinary arithmetic takes each element apart, which takes longer
  // than memory does (docs/notebook/products.md).
  if (ir::size_of(s.a) == 1 && !candidates_of(s, MatmulMethod::Wgmma, machine).empty())
    return MatmulMethod::Wgmma;
  // A large b[K,N]: no box brings it to Dot (docs/notebook/single-ops.md).
  constexpr int64_t kMuch = 16 * 1024 * 1024;  // bytes
  if (!s.transpose_b && s.N * s.K * ir::size_of(s.b) >= kMuch &&
      !candidates_of(s, MatmulMethod::Wgmma, machine).empty())
    return MatmulMethod::Wgmma;
  if (s.plan_rows.hi <= few_rows(s, machine)) return MatmulMethod::Dot;
  const bool many = s.plan_rows.lo > few_rows(s, machine);
  // A method that the machine has for these types, and that takes some tile.
  for (MatmulMethod method :
       {MatmulMethod::Wgmma, many ? MatmulMethod::Mma : MatmulMethod::ByRowsMma})
    if (!candidates_of(s, method, machine).empty()) return method;
  return many ? MatmulMethod::Block : MatmulMethod::ByRows;
}

std::optional<ir::Body> epilogue_of(const ir::Op& op) {
  const std::string text = attr_word(op, "epilogue", "");
  if (text.empty()) return std::nullopt;
  std::string error;
  auto body = ir::parse_body(text, error);
  MACO_CHECK(body, error);
  return body;
}
ir::DType matmul_sum_dtype(const ir::Op& op, ir::DType result) {
  const auto body = epilogue_of(op);
  if (!body) return result;
  for (const ir::BodyStep& step : body->steps)
    for (const ir::BodyArg& arg : step.args)
      if (arg.kind == ir::BodyArg::Kind::Operand && arg.index == 0) return step.dtype;
  return result;
}

void shape_of_stages(const ir::Graph& graph, const ir::Op& op, MatmulShape& s) {
  for (const StageUse& use : matmul_stages_of(op)) {
    s.whole = true;
    if (use.stage->shape) use.stage->shape(graph, op, s);
  }
}
MatmulShape matmul_shape(const ir::Graph& graph, const ir::Op& op) {
  const ir::Shape& a = graph[op.in[0]].shape;
  const ir::Shape& b = graph[op.in[1]].shape;
  MatmulShape s;
  s.transpose_b = attr_flag(op, "transpose_b", false);
  s.K = *a.back().constant();
  s.N = *b[s.transpose_b ? 0 : 1].constant();
  s.a = graph[op.in[0]].dtype;
  s.b = graph[op.in[1]].dtype;
  s.y = matmul_sum_dtype(op, graph[op.out[0]].dtype);
  const auto rows = ir::bounds(leading(a), [&](std::string_view n) { return graph.range_of(n); });
  MACO_CHECK(rows, op.name);
  s.plan_rows = *rows;
  s.min_rows = rows->lo;
  s.max_rows = s.typical_rows = rows->hi;
  s.all_there = has_all_rows(graph[op.in[0]]);
  shape_of_stages(graph, op, s);
  return s;
}

namespace {

bool is_plain(const ir::Op& op) { return matmul_stages_of(op).empty(); }
// Why the result of so few rows can't go to all ranks in packets, or "".
std::string refuse_packets(const ir::Graph& graph, const ir::Op& op, const MatmulShape& s) {
  if (!ir::is_float(graph[op.out[0]].dtype)) return "packets are of floats";
  // Half of a packet is its flag. For larger results it is faster to send tiles of tensor cores, or
  // to put what is stored (docs/notebook/communication.md).
  constexpr int64_t kAlways = 256 * 1024, kMostSent = 3 * 1024 * 1024, kPacket = 8;
  const int64_t bytes = s.max_rows * s.N * kPacket;
  if (bytes <= kAlways || bytes * (graph.world - 1) <= kMostSent) return "";
  return fmt::format("{} packets of it are too many", s.max_rows * s.N);
}

// The only op that reads `t`; null if there is none or there are several.
const ir::Op* only_reader(const ir::Graph& graph, ir::TensorId t) {
  const ir::Op* reader = nullptr;
  for (const ir::Op& op : graph.ops) {
    if (std::find(op.in.begin(), op.in.end(), t) == op.in.end()) continue;
    if (reader) return nullptr;
    reader = &op;
  }
  return reader;
}
bool is_normed(const ir::Graph& graph, ir::TensorId x) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [&](const ir::Op& op) { return op.kind == "rmsnorm" && op.out[0] == x; });
}

// The method that the op names, else the machine's choice.
MatmulMethod method_of(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  const std::string given = attr_word(op, "method", "");
  for (size_t i = 0; i < functions::kMatmulMethods; ++i)
    if (functions::name(static_cast<MatmulMethod>(i)) == given) return static_cast<MatmulMethod>(i);
  return sends_few_rows_in_tiles(graph, op, machine)
             ? MatmulMethod::Wgmma
             : choose_matmul_method(matmul_shape(graph, op), machine);
}

}  // namespace

bool sends_few_rows_in_tiles(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine) {
  if (graph.world < 2 || !is_plain(op) || op.attrs.count("epilogue") ||
      graph[op.out[0]].kind == ir::TensorKind::State || is_normed(graph, op.in[0]))
    return false;
  const ir::Op* sum = only_reader(graph, op.out[0]);
  if (!sum || !is_sum_of_tiles(*sum) || sum->in[0] != op.out[0]) return false;
  MatmulShape s = matmul_shape(graph, op);
  if (choose_matmul_method(s, machine) != MatmulMethod::Dot || s.min_rows != s.max_rows)
    return false;
  if (is_one_shot_sum(*sum) && refuse_packets(graph, op, s).empty()) return false;
  s.sent = true;
  return choose_matmul_tiles(s, MatmulMethod::Wgmma, machine, machine.sms).has_value();
}

bool is_of_few_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  return method_of(graph, op, machine) == MatmulMethod::Dot;
}

bool is_by_many_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  return !functions::takes_dot(method_of(graph, op, machine));
}

bool wants_all_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  if (has_all_rows(graph[op.in[0]])) return false;
  MatmulShape s = matmul_shape(graph, op);
  s.all_there = true;
  return choose_matmul_method(s, machine) == MatmulMethod::Wgmma;
}

bool may_be_paired(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  if (is_of_few_rows(graph, op, machine)) return true;
  const MatmulShape one = matmul_shape(graph, op);
  MatmulShape both = one;
  both.sums = 2;
  const MatmulMethod method = choose_matmul_method(both, machine);
  constexpr int64_t kLeastRows = 128;  // of many rows; fewer haven't been measured
  const bool fixed = one.min_rows == one.max_rows;
  if (one.max_rows < kLeastRows ||
      !(fixed ? functions::on_tensor_cores(method) : method == MatmulMethod::Wgmma))
    return false;
  const auto tiles = choose_matmul_tiles(both, method, machine, machine.sms);
  const MatmulMethod alone = choose_matmul_method(one, machine);
  const auto single = choose_matmul_tiles(one, alone, machine, machine.sms);
  // Matmuls in parts of K have other sums, and a pair would leave SMs without a tile.
  if (!tiles || !single || matmul_parts(one.K, *single) > 1) return false;
  const double times = estimate(both, method, one.max_rows, *tiles, machine, machine.sms) /
                       estimate(one, alone, one.max_rows, *single, machine, machine.sms);
  return times <= 2 * (1 + 1e-9);
}

std::string refuse_to_send(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine,
                           bool may_send_packets, bool may_mate) {
  if (!is_plain(op)) return "the product is paired or normed, turns heads or appends to states";
  MatmulShape s = matmul_shape(graph, op);
  s.sent = true;
  const MatmulMethod method = method_of(graph, op, machine);
  if (method == MatmulMethod::Dot && may_send_packets) return refuse_packets(graph, op, s);
  if (method != MatmulMethod::Mma && method != MatmulMethod::Wgmma)
    return fmt::format("the product takes method '{}'", functions::name(method));
  const auto tiles = choose_matmul_tiles(s, method, machine, machine.sms);
  if (!tiles || (matmul_parts(s.K, *tiles) > 1 && !may_mate)) return "the product's tiles share K";
  return "";
}

namespace {

// Why the machine's tensor cores can't take such tiles, or "".
std::string refuse_tensor_tile(const MatmulShape& s, MatmulMethod method, MatmulTiles t,
                               const cost::Machine& machine) {
  const std::string_view word = functions::name(method);
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
  const bool bulk = method == MatmulMethod::Wgmma;
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
  const int64_t blocks = ceil_div(depth, functions::matmul_block(ir::size_of(s.a)));
  const int64_t a = functions::matmul_held_pages(t.BM, t.BN, blocks, machine.page_bytes),
                b = functions::matmul_held_pages(t.BN, t.BM, blocks, machine.page_bytes);
  // One more page, so that some pages are filled while others are read.
  if (a == 0 || b == 0 || a + b * sums >= machine.pages)
    return fmt::format(
        "a ring of {} pages of {} bytes has no room for a tile of {} rows and {} "
        "columns by method '{}'",
        machine.pages, machine.page_bytes, t.BM, t.BN, word);
  return "";
}

}  // namespace

namespace {

// Why tiles can't cover so much of K, or "".
std::string refuse_depth(const MatmulShape& s, MatmulMethod method, int64_t depth) {
  if (method != MatmulMethod::Mma && method != MatmulMethod::Wgmma)
    return fmt::format("a tile of method '{}' has all of K, {} elements, not {}",
                       functions::name(method), s.K, depth);
  if (s.sums > 1)
    return fmt::format("a tile of a pair of products has all of K, {} elements, not {}", s.K,
                       depth);
  if (s.whole)
    return fmt::format("a tile of a product with stages has all of K, {} elements, not {}", s.K,
                       depth);
  if (s.min_rows != s.max_rows)
    return fmt::format("tiles share K where no dim decides the rows, not of {} to {} rows",
                       s.min_rows, s.max_rows);
  const int64_t block = functions::matmul_block(ir::size_of(s.a));
  if (depth % block != 0 || ceil_div(s.K, depth) > kMostMatmulParts)
    return fmt::format(
        "a tile has all of K or a multiple of {} elements, at least 1/{} of {}, not {}", block,
        kMostMatmulParts, s.K, depth);
  return "";
}

}  // namespace

bool may_halve(MatmulMethod method, int64_t K, MatmulTiles t, const cost::Machine& machine) {
  return method == MatmulMethod::Wgmma && matmul_parts(K, t) == 2 &&
         functions::matmul_halves_pages(t.BM, t.BN, machine.page_bytes, machine.pages) > 0;
}

bool may_send(const MatmulShape& s, MatmulMethod method, MatmulTiles t,
              const cost::Machine& machine) {
  // The last tile must have columns for both mates.
  const bool halves = s.N % t.BN == 0 || s.N % t.BN > t.BN / 2;
  return matmul_parts(s.K, t) == 1 || (halves && may_halve(method, s.K, t, machine));
}

std::string refuse_matmul(const MatmulShape& s, MatmulMethod method, MatmulTiles t,
                          const cost::Machine& machine) {
  if (matmul_parts(s.K, t) > 1)
    if (const std::string why = refuse_depth(s, method, t.BK); !why.empty()) return why;
  if (method == MatmulMethod::Dot) {
    const int64_t unit = functions::matmul_column_step(s.N, s.transpose_b);
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
  if (functions::on_tensor_cores(method)) {
    if (const std::string why = refuse_tensor_tile(s, method, t, machine); !why.empty()) return why;
    if (functions::takes_dot(method) &&
        t.BN % functions::matmul_column_step(s.N, s.transpose_b) != 0)
      return fmt::format("a tile of this product has a multiple of {} columns, not {}",
                         functions::matmul_column_step(s.N, s.transpose_b), t.BN);
    return "";
  }
  const auto is_extent = [](int64_t n) { return n >= 16 && n <= 128 && is_power(n); };
  if (!is_extent(t.BM) || !is_extent(t.BN))
    return fmt::format(
        "a tile of method '{}' has 16, 32, 64 or 128 rows and columns, not {} and {}",
        functions::name(method), t.BM, t.BN);
  if (method == MatmulMethod::ByRows &&
      t.BN % functions::matmul_column_step(s.N, s.transpose_b) != 0)
    return fmt::format("a tile of this product has a multiple of {} columns, not {}",
                       functions::matmul_column_step(s.N, s.transpose_b), t.BN);
  if (!functions::matmul_fits(t.BN, ir::size_of(s.b), s.transpose_b, machine.page_bytes))
    return fmt::format("a page of {} bytes has no room for a slice of {} columns",
                       machine.page_bytes, t.BN);
  return "";
}

namespace {

// Microseconds until parts are added up, in addition to the matmul's: two hand-offs, and sums that
// go to the GPU's cache and back. With the factor kTimes on memory's time for the sums, tiles come
// in the order that was measured (docs/benchmarks/logs/products-parts-h200.txt).
double merge_estimate(const MatmulShape& s, int64_t parts, const cost::Machine& machine) {
  constexpr double kSumBytes = 4, kTimes = 4;
  const double bytes = kTimes * kSumBytes * static_cast<double>(s.plan_rows.hi * s.N * parts);
  return 2 * machine.hand_over + bytes / machine.memory_rate * 1e6;
}

// Microseconds that mates take to exchange halves of their sums, in addition to `products`, the
// matmul's: one waits for the other, and for sums beyond kFree. The constants put tiles in the
// order that was measured (docs/benchmarks/logs/products-halved-h200.txt).
double exchange_estimate(const MatmulTiles& t, double products) {
  constexpr double kStart = 1.4, kBehind = 0.06;
  constexpr double kSumBytes = 4, kRate = 11e3;  // bytes in a microsecond
  constexpr int64_t kFree = 64 * 128;
  const auto sums = static_cast<double>(std::max<int64_t>(0, t.BM * t.BN - kFree));
  return kStart + kBehind * products + kSumBytes / 2 * sums / kRate;
}

// What parts of K cost in addition to `products`, the matmul's microseconds. Where mates suit, they
// are taken to be possible: the order of additions must not depend on roles and priorities.
double parts_estimate(const MatmulShape& s, MatmulMethod method, const MatmulTiles& t,
                      const cost::Machine& machine, double products) {
  const int64_t parts = matmul_parts(s.K, t);
  if (parts == 1) return 0;
  return may_halve(method, s.K, t, machine) ? exchange_estimate(t, products)
                                            : merge_estimate(s, parts, machine);
}

// How much of K tiles cover; 0: all. It depends on the op's rows and on all SMs, since the order of
// additions follows from it. Parts are faster if the tiles that read least are fewer than the SMs.
int64_t choose_depth(const MatmulShape& s, MatmulMethod method, const cost::Machine& machine) {
  constexpr double kGain = 1.03;  // at least: the model isn't more accurate
  const int64_t rows = s.plan_rows.hi;
  if (s.sums > 1 || s.heads > 0 || s.tall || s.whole || s.plan_rows.lo != rows ||
      s.min_rows != s.max_rows)
    return 0;
  MatmulShape whole = s;
  whole.min_rows = whole.max_rows = whole.typical_rows = rows;
  // Whatever the tiles are, the operands come from memory once.
  const double floor =
      1e6 / machine.memory_rate *
      static_cast<double>(s.N * s.K * ir::size_of(s.b) + rows * s.K * ir::size_of(s.a));
  int64_t depth = 0;
  double best = 0;
  for (int64_t parts = 1; parts <= kMostMatmulParts; ++parts) {
    const int64_t block = functions::matmul_block(ir::size_of(s.a));
    const int64_t own = parts == 1 ? 0 : ceil_div(ceil_div(s.K, block), parts) * block;
    if (parts > 1 && (own >= s.K || matmul_parts(s.K, {.BK = own}) != parts)) continue;
    for (MatmulTiles t : candidates_of(whole, method, machine)) {
      t.BK = own;
      if (!refuse_matmul(whole, method, t, machine).empty()) continue;
      const double products = estimate(whole, method, rows, t, machine, machine.sms);
      const double time =
          std::max(floor, products) + parts_estimate(whole, method, t, machine, products);
      if (best != 0 && time * (parts > 1 ? kGain : 1) >= best) continue;
      best = time;
      depth = own;
    }
  }
  return depth;
}

}  // namespace

std::string refuse_to_finish(const MatmulShape& plain, const MatmulShape& both,
                             const TileWords& tiles_of, const cost::Machine& machine) {
  const MatmulMethod method = choose_matmul_method(both, machine);
  if (method != MatmulMethod::Mma && method != MatmulMethod::Wgmma)
    return fmt::format("its product takes method '{}'", functions::name(method));
  const auto tiles = choose_matmul_tiles(both, method, machine, machine.sms);
  if (!tiles) return fmt::format("its product has no tiles of {}", tiles_of.none);
  // The op behind it reads and writes the whole result, and costs another hand-off.
  const MatmulMethod alone = choose_matmul_method(plain, machine);
  const auto others = choose_matmul_tiles(plain, alone, machine, machine.sms);
  if (!others) return "";
  const int64_t rows = plain.max_rows;
  const double behind =
      machine.hand_over +
      2e6 * static_cast<double>(rows * plain.N * ir::size_of(plain.y)) / machine.memory_rate;
  const double products = estimate(plain, alone, rows, *others, machine, machine.sms);
  const double apart = products + parts_estimate(plain, alone, *others, machine, products) + behind;
  if (estimate(both, method, rows, *tiles, machine, machine.sms) > apart)
    return fmt::format("its product is quicker in tiles {}", tiles_of.others);
  return "";
}

std::optional<MatmulTiles> choose_matmul_tiles(const MatmulShape& s, MatmulMethod method,
                                               const cost::Machine& machine, int32_t sms) {
  std::vector<MatmulTiles> candidates = candidates_of(s, method, machine);
  if (method == MatmulMethod::Mma || method == MatmulMethod::Wgmma) {
    if (const int64_t depth = choose_depth(s, method, machine)) {
      for (MatmulTiles& t : candidates) t.BK = depth;
      candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                      [&](const MatmulTiles& t) {
                                        return !refuse_matmul(s, method, t, machine).empty() ||
                                               (s.sent && !may_send(s, method, t, machine));
                                      }),
                       candidates.end());
    }
  }
  if (candidates.empty()) return std::nullopt;

  // If dims decide, few rows and many must both be fast. Times count relative to the best for each
  // number of rows, and the typical number counts as much as both. For wgmma, which never gives way
  // to 'dot', fewer rows than typical count less.
  constexpr double kFewest = 0.25;
  std::vector<int64_t> sizes = {s.typical_rows};
  if (s.min_rows < s.max_rows) sizes = {s.typical_rows, s.typical_rows, s.min_rows, s.max_rows};
  std::vector<double> total(candidates.size(), 0);
  for (int64_t rows : sizes) {
    std::vector<double> times;
    for (const MatmulTiles& t : candidates) {
      const double products = estimate(s, method, rows, t, machine, sms);
      times.push_back(products + parts_estimate(s, method, t, machine, products));
    }
    const double best = *std::min_element(times.begin(), times.end());
    const double weight = rows < s.typical_rows && method == MatmulMethod::Wgmma ? kFewest : 1;
    for (size_t i = 0; i < times.size(); ++i) total[i] += weight * times[i] / best;
  }
  // Among equally fast tiles take the largest: fewer tasks.
  size_t chosen = 0;
  for (size_t i = 1; i < candidates.size(); ++i)
    if (total[i] <= total[chosen] * (1 + 1e-9)) chosen = i;
  return candidates[chosen];
}

}  // namespace maco::ops
