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

using functions::choose_matmul_method;
using functions::matmul_candidates;
using functions::matmul_method;

namespace {

int64_t few_rows(const MatmulShape& s, const cost::Machine& machine) {
  return functions::matmul_few_rows(s.a, s.b, s.K, s.transpose_b, machine);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How much longer memory takes for a tile of few rows whose boxes don't fill their pages. Matmuls
// of 32 rows in boxes of 4 KB, a quarter of a page, took about twice as long on as many SMs
// (computed from docs/benchmarks/logs/few-rows-sent-2026-11-28.txt).
double small_boxes(const MatmulShape& s, const MatmulMethod& method, MatmulTiles t,
                   const cost::Machine& machine) {
  const auto box = functions::matmul_few_box({.method = &method,
                                              .N = s.N,
                                              .K = s.K,
                                              .BM = t.BM,
                                              .BN = t.BN,
                                              .transpose_b = s.transpose_b,
                                              .page_bytes = machine.page_bytes,
                                              .a_bytes = ir::size_of(s.a),
                                              .b_bytes = ir::size_of(s.b),
                                              .few_rows = few_rows(s, machine),
                                              .sums = s.sums});
  if (!box || !machine.has_boxes()) return 1;
  constexpr double kOfEach = 1.0 / 3;
  const auto bytes = static_cast<double>(box->rows * box->cols * ir::size_of(s.b) * s.sums);
  return 1 + kOfEach * (static_cast<double>(machine.page_bytes) / bytes - 1);
}

// Microseconds of the SM with the most tiles.
double estimate(const MatmulShape& s, const MatmulMethod& method, int64_t rows, MatmulTiles t,
                const cost::Machine& m, int32_t sms) {
  const int64_t tiles = ceil_div(rows, t.BM) * ceil_div(s.N, t.BN) * matmul_parts(s.K, t);
  cost::Work work = functions::matmul_work({.method = &method,
                                            .rows = rows,
                                            .K = t.BK > 0 ? t.BK : s.K,
                                            .BM = t.BM,
                                            .BN = t.BN,
                                            .a_bytes = ir::size_of(s.a),
                                            .b_bytes = ir::size_of(s.b),
                                            .few_rows = few_rows(s, m),
                                            .sums = s.sums},
                                           m);
  work.bytes *= small_boxes(s, method, t, m);
  return static_cast<double>(ceil_div(tiles, sms)) * cost::microseconds(work, m, sms);
}

}  // namespace

bool has_all_rows(const ir::Tensor& a) {
  return a.kind == ir::TensorKind::Temp || a.shape[0].is_constant();
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
bool follows_norm(const ir::Graph& graph, ir::TensorId x) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [&](const ir::Op& op) { return op.kind == "rmsnorm" && op.out[0] == x; });
}

// The method that the op names, else the machine's choice.
const MatmulMethod& method_of(const ir::Graph& graph, const ir::Op& op,
                              const cost::Machine& machine) {
  const std::string given = attr_word(op, "method", "");
  if (const MatmulMethod* method = functions::find_matmul_method(given)) return *method;
  return sends_few_rows_in_tiles(graph, op, machine)
             ? functions::method_of_sent_tiles()
             : choose_matmul_method(matmul_shape(graph, op), machine);
}

}  // namespace

bool sends_few_rows_in_tiles(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine) {
  if (graph.world < 2 || !is_plain(op) || op.attrs.count("epilogue") ||
      graph[op.out[0]].kind == ir::TensorKind::State || follows_norm(graph, op.in[0]))
    return false;
  const ir::Op* sum = only_reader(graph, op.out[0]);
  if (!sum || !is_sum_of_tiles(*sum) || sum->in[0] != op.out[0]) return false;
  MatmulShape s = matmul_shape(graph, op);
  if (!choose_matmul_method(s, machine).few || s.min_rows != s.max_rows) return false;
  if (is_one_shot_sum(*sum) && refuse_packets(graph, op, s).empty()) return false;
  s.sent = true;
  return choose_matmul_tiles(s, functions::method_of_sent_tiles(), machine, machine.sms)
      .has_value();
}

bool is_of_few_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  return method_of(graph, op, machine).few;
}

bool is_by_many_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  return !method_of(graph, op, machine).takes_dot();
}

bool method_takes(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine,
                  std::string_view stage) {
  return functions::takes_stage(method_of(graph, op, machine).code, stage);
}

bool wants_all_rows(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  if (has_all_rows(graph[op.in[0]])) return false;
  MatmulShape s = matmul_shape(graph, op);
  s.all_there = true;
  return choose_matmul_method(s, machine).boxes;
}

bool may_be_paired(const ir::Graph& graph, const ir::Op& op, const cost::Machine& machine) {
  if (is_of_few_rows(graph, op, machine)) return true;
  const MatmulShape one = matmul_shape(graph, op);
  MatmulShape both = one;
  both.sums = 2;
  const MatmulMethod& method = choose_matmul_method(both, machine);
  constexpr int64_t kLeastRows = 128;  // of many rows; fewer haven't been measured
  const bool fixed = one.min_rows == one.max_rows;
  if (one.max_rows < kLeastRows || !(fixed ? method.tensor_cores : method.boxes)) return false;
  const auto tiles = choose_matmul_tiles(both, method, machine, machine.sms);
  const MatmulMethod& alone = choose_matmul_method(one, machine);
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
  const MatmulMethod& method = method_of(graph, op, machine);
  if (method.few && may_send_packets) return refuse_packets(graph, op, s);
  if (!method.only_tensor_cores())
    return fmt::format("the product takes method '{}'", method.name());
  const auto tiles = choose_matmul_tiles(s, method, machine, machine.sms);
  if (!tiles || (matmul_parts(s.K, *tiles) > 1 && !may_mate)) return "the product's tiles share K";
  return "";
}

bool may_halve(const MatmulMethod& method, int64_t K, MatmulTiles t, const cost::Machine& machine) {
  return method.mates && matmul_parts(K, t) == 2 &&
         functions::matmul_halves_pages(t.BM, t.BN, machine.page_bytes, machine.pages) > 0;
}

bool may_send(const MatmulShape& s, const MatmulMethod& method, MatmulTiles t,
              const cost::Machine& machine) {
  // The last tile must have columns for both mates.
  const bool halves = s.N % t.BN == 0 || s.N % t.BN > t.BN / 2;
  return matmul_parts(s.K, t) == 1 || (halves && may_halve(method, s.K, t, machine));
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
double parts_estimate(const MatmulShape& s, const MatmulMethod& method, const MatmulTiles& t,
                      const cost::Machine& machine, double products) {
  const int64_t parts = matmul_parts(s.K, t);
  if (parts == 1) return 0;
  return may_halve(method, s.K, t, machine) ? exchange_estimate(t, products)
                                            : merge_estimate(s, parts, machine);
}

// How much of K tiles cover; 0: all. It depends on the op's rows and on all SMs, since the order of
// additions follows from it. Parts are faster if the tiles that read least are fewer than the SMs.
int64_t choose_depth(const MatmulShape& s, const MatmulMethod& method,
                     const cost::Machine& machine) {
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
    for (MatmulTiles t : matmul_candidates(whole, method, machine)) {
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
  const MatmulMethod& method = choose_matmul_method(both, machine);
  if (!method.only_tensor_cores())
    return fmt::format("its product takes method '{}'", method.name());
  const auto tiles = choose_matmul_tiles(both, method, machine, machine.sms);
  if (!tiles) return fmt::format("its product has no tiles of {}", tiles_of.none);
  // The op behind it reads and writes the whole result, and costs another hand-off.
  const MatmulMethod& alone = choose_matmul_method(plain, machine);
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

std::optional<MatmulTiles> choose_matmul_tiles(const MatmulShape& s, const MatmulMethod& method,
                                               const cost::Machine& machine, int32_t sms) {
  std::vector<MatmulTiles> candidates = matmul_candidates(s, method, machine);
  if (method.parts) {
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
  // number of rows, and the typical number counts as much as both. With boxes, for which few
  // rows never take 'dot', fewer rows than typical count less.
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
    const double weight = rows < s.typical_rows && method.boxes ? kFewest : 1;
    for (size_t i = 0; i < times.size(); ++i) total[i] += weight * times[i] / best;
  }
  // Among equally fast tiles take the largest: fewer tasks.
  size_t chosen = 0;
  for (size_t i = 1; i < candidates.size(); ++i)
    if (total[i] <= total[chosen] * (1 + 1e-9)) chosen = i;
  return candidates[chosen];
}

}  // namespace maco::ops
