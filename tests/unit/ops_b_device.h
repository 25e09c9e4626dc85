// Checks of matmul, maps, norms, softmax, reductions, rope and attention on the simulated threads
// of device_mock.h against sums in double. Included inside a namespace, once for each number of
// threads.

#include "tests/unit/device_mock.h"

#define MACO_FN inline
#define MACO_OP inline
#define MACO_UNROLL
#define MACO_ROLLED
// What the ops need comes before them: device headers include nothing.
#include "runtime/device/rows.cuh"
#include "runtime/device/vectors.cuh"

#include "runtime/device/tensor_cores.cuh"
#include "runtime/device/thread_tile.cuh"

#include "runtime/device/ops/argmax.cuh"
#include "runtime/device/ops/attention_scores.cuh"
// Behind it.
#include "runtime/device/ops/attention.cuh"
#include "runtime/device/ops/elementwise.cuh"
#include "runtime/device/ops/layernorm.cuh"
#include "runtime/device/ops/matmul.cuh"
#include "runtime/device/ops/matmul_row.cuh"
// Behind it.
#include "runtime/device/ops/matmul_block.cuh"
#include "runtime/device/ops/matmul_few.cuh"
// Behind it.
#include "runtime/device/ops/matmul_few_mma.cuh"
#include "runtime/device/ops/matmul_line.cuh"
#include "runtime/device/ops/matmul_norm.cuh"
#include "runtime/device/ops/matmul_tensor.cuh"
#include "runtime/device/ops/matmul_ways.cuh"
#include "runtime/device/ops/reduce.cuh"
#include "runtime/device/ops/rmsnorm.cuh"
#include "runtime/device/ops/rope.cuh"
#include "runtime/device/ops/softmax.cuh"
// Behind rope.
// clang-format off
#include "runtime/device/ops/attention_pages.cuh"
#include "runtime/device/ops/attention_step_shape.cuh"
#include "runtime/device/ops/attention_step_warp.cuh"
#include "runtime/device/ops/attention_step_lone.cuh"
#include "runtime/device/ops/attention_step.cuh"
#include "runtime/device/ops/attention_merge.cuh"
#include "runtime/device/ops/attention_tile_shape.cuh"
#include "runtime/device/ops/attention_tile_warp.cuh"
#include "runtime/device/ops/attention_tile_group.cuh"
#include "runtime/device/ops/attention_tile_lone.cuh"
#include "runtime/device/ops/attention_tile.cuh"
// clang-format on
// What matmul_ways.cuh and rope.cuh declare.
#include "runtime/device/ops/matmul_append.cuh"
#include "runtime/device/ops/matmul_turn.cuh"
#undef MACO_FN
#undef MACO_OP
#undef MACO_UNROLL
#undef MACO_ROLLED

using namespace maco;
using f32 = float;

// Elements that end where their memory ends, with a canary in front: what is written outside is
// noticed, and what is read outside is noticed by AddressSanitizer.
template <class T>
struct Tensor {
  std::vector<T> v;
  explicit Tensor(i64 n) : v(static_cast<size_t>(n)) {
    std::memset(static_cast<void*>(v.data()), 0xff, v.size() * sizeof(T));
  }
  Tensor(i64 n, unsigned seed, double scale = 1) : v(static_cast<size_t>(n)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> real(-1, 1);
    for (T& x : v) {
      if constexpr (is_same<AccOf<T>, i32>) {
        x = static_cast<T>(random());
      } else {
        x = from_acc<T>(static_cast<float>(real(random) * scale));
      }
    }
  }
  void* data() { return v.data(); }
  double operator[](i64 i) const { return static_cast<double>(to_acc(v[static_cast<size_t>(i)])); }
};

// The relative error in the Frobenius norm; infinite if NaNs are at different places.
template <class T>
double error_of(const Tensor<T>& y, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = y[static_cast<i64>(i)], want = expected[i];
    if (std::isnan(got) != std::isnan(want)) return HUGE_VAL;
    if (std::isnan(want) || (std::isinf(want) && got == want)) continue;
    difference += (got - want) * (got - want);
    norm += want * want;
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}
template <class T>
double bound_of() {
  if constexpr (is_same<T, f16>) return 1e-3;
  if constexpr (is_same<T, bf16>) return 4e-3;
  if constexpr (is_same<T, f8e4m3>) return 5e-2;
  if constexpr (is_same<T, f8e5m2>) return 1e-1;
  return 2e-6;
}

// A tensor as packets of launch 0, and back: infinite where a flag is another.
template <class T>
std::vector<typename Packet<T>::Word> in_packets(const Tensor<T>& t) {
  std::vector<typename Packet<T>::Word> words;
  for (const T& x : t.v) words.push_back(Packet<T>::make(x, 0));
  return words;
}
template <class T>
void out_of_packets(const std::vector<typename Packet<T>::Word>& words, Tensor<T>& t) {
  for (size_t i = 0; i < words.size(); ++i)
    t.v[i] = Packet<T>::differs(words[i], 0) == 0 ? Packet<T>::value(words[i])
                                                  : from_acc<T>(AccOf<T>(HUGE_VALF));
}

template <class F>
void run_rows(i64 rows, i64 block, const std::vector<void*>& operands, std::vector<i64> values,
              F f) {
  values.insert(values.begin(), rows);
  for (i64 t = 0; t <= (rows - 1) / block + 1; ++t)  // one tile more than there are rows for
    run_tile(
        operands, values, 0, [](Context&) {},
        [&](Context& ctx) { f(ctx, Args{ctx, nullptr}, static_cast<u32>(t)); });
}

#include "tests/unit/ops_b_products.h"

// ---- maps -------------------------------------------------------------------

// x b + s, where b has an element a column and s is one number.
template <class T, class Y_, i64 N_, i64 BM_, i64 BN_, i64 V_>
struct Scaled {
  using X = T;
  using Y = Y_;
  using rows = Value<0>;
  using operands = ops::Operands<ops::Full<T>, ops::Column<f32>, ops::Single<f32>>;
  static constexpr i64 N = N_, BM = BM_, BN = BN_, V = V_;
  static constexpr bool runs = BN == N && BM * N % V == 0 && N % V != 0, moves = false;
  static f32 apply(f32 x, f32 b, f32 s) { return fn::mul_add(x, b, s); }
};
template <class C>
void check_map(i64 rows) {
  Tensor<typename C::X> x(rows * C::N, 1);
  Tensor<f32> b(C::N, 2), s(1, 3);
  Tensor<typename C::Y> y(rows * C::N);
  std::vector<void*> operands = {x.data(), b.data(), s.data(), y.data()};
  constexpr i64 across = (C::N + C::BN - 1) / C::BN;
  for (i64 t = 0; t < ((rows - 1) / C::BM + 2) * across; ++t)  // a row of tiles too many
    run_tile(
        operands, {rows}, 0, [](Context&) {},
        [&](Context& ctx) { ops::elementwise<C>(ctx, Args{ctx, nullptr}, static_cast<u32>(t)); });
  std::vector<double> expected;
  for (i64 i = 0; i < rows * C::N; ++i) expected.push_back(x[i] * b[i % C::N] + s[0]);
  INFO("rows " << rows << " N " << C::N);
  CHECK(error_of(y, expected) < bound_of<typename C::Y>());
}
inline void check_maps() {
  check_map<Scaled<f32, f32, 1, 1, 1, 1>>(1);
  check_map<Scaled<bf16, bf16, 264, 64, 64, 8>>(100);
  check_map<Scaled<f16, f32, 4096, 7, 4096, 4>>(15);
  check_map<Scaled<f8e4m3, bf16, 1000, 3, 256, 8>>(4);
  check_map<Scaled<bf16, f32, 97, 5, 32, 1>>(11);
}

// Rows so long that a tile's element is more than 2^32 from its first one. Memory that nothing was
// written to is not there.
struct FarCopy {
  using Y = u8;
  using rows = Const<64>;
  using operands = ops::Operands<ops::Full<u8>>;
  static constexpr i64 N = 70000000, BM = 64, BN = 16, V = 16;
  static constexpr bool runs = false, moves = true;
};
inline void check_far_elements() {
  constexpr i64 size = 64 * FarCopy::N, far = 63 * FarCopy::N + 5;
  struct Memory {
    char* first = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ~Memory() { munmap(first, size); }
  } x, y;
  REQUIRE(x.first != MAP_FAILED);
  REQUIRE(y.first != MAP_FAILED);
  x.first[far] = 42;
  run_tile(
      {x.first, y.first}, {}, 0, [](Context&) {},
      [&](Context& ctx) { ops::elementwise<FarCopy>(ctx, Args{ctx, nullptr}, 0); });
  CHECK(y.first[far] == 42);
}

// ---- ops over rows ----------------------------------------------------------

template <class X_, class W_, class Y_, i64 N_, i64 BR_>
struct Norm {
  using X = X_;
  using W = W_;
  using B = W_;
  using Y = Y_;
  using rows = Value<0>;
  static constexpr i64 N = N_, BR = BR_;
  static constexpr double eps = 1e-5;
};
// Norms of many rows, which the warps divide among themselves.
template <class X, class W, class Y, i64 N, i64 BR>
struct ManyNorms : Norm<X, W, Y, N, BR> {
  using rows = Const<kManyRows>;
};
template <class C>
void check_norms(i64 rows) {
  Tensor<typename C::X> x(rows * C::N, 1, 3);
  Tensor<typename C::W> w(C::N, 2), b(C::N, 3);
  Tensor<typename C::Y> y(rows * C::N), z(rows * C::N);
  run_rows(rows, C::BR, {x.data(), w.data(), y.data()}, {},
           [](auto& ctx, auto args, u32 t) { ops::rmsnorm<C>(ctx, args, t); });
  run_rows(rows, C::BR, {x.data(), w.data(), b.data(), z.data()}, {},
           [](auto& ctx, auto args, u32 t) { ops::layernorm<C>(ctx, args, t); });
  std::vector<double> rms, layer;
  for (i64 r = 0; r < rows; ++r) {
    double squares = 0, sum = 0, variance = 0;
    for (i64 i = 0; i < C::N; ++i)
      squares += x[r * C::N + i] * x[r * C::N + i], sum += x[r * C::N + i];
    const double mean = sum / static_cast<double>(C::N);
    for (i64 i = 0; i < C::N; ++i) variance += (x[r * C::N + i] - mean) * (x[r * C::N + i] - mean);
    for (i64 i = 0; i < C::N; ++i) {
      rms.push_back(x[r * C::N + i] / std::sqrt(squares / static_cast<double>(C::N) + C::eps) *
                    w[i]);
      layer.push_back((x[r * C::N + i] - mean) /
                          std::sqrt(variance / static_cast<double>(C::N) + C::eps) * w[i] +
                      b[i]);
    }
  }
  INFO("rows " << rows << " N " << C::N);
  CHECK(error_of(y, rms) < bound_of<typename C::Y>());
  CHECK(error_of(z, layer) < bound_of<typename C::Y>());
}
inline void check_all_norms() {
  check_norms<Norm<f32, f32, f32, 1, 4>>(5);
  check_norms<Norm<bf16, bf16, bf16, 64, 3>>(7);
  check_norms<Norm<bf16, f32, f16, 97, 2>>(9);
  check_norms<Norm<f16, bf16, f32, 2048, 1>>(2);
  check_norms<Norm<f32, f32, f32, 2500, 2>>(3);
  check_norms<Norm<f32, f32, f32, 40001, 2>>(2);
  check_norms<Norm<f8e4m3, f32, f32, 3000, 2>>(2);
  check_norms<ManyNorms<bf16, bf16, bf16, 2048, 400>>(kManyRows);
}

template <class X_, class Y_, i64 N_, i64 BR_, ops::ReduceKind kKind = ops::ReduceKind::sum,
          bool kDims = false>
struct Row {
  using X = X_;
  using Y = Y_;
  using rows = Value<0>;
  using cols = std::conditional_t<kDims, Value<1>, Const<N_>>;
  static constexpr i64 N = N_, BR = BR_;
  static constexpr auto kind = kKind;
};
// sum, mean, max, argmax, softmax of the same rows. `special`: 1 puts NaN into the second row, 2
// ties and infinities everywhere.
template <class X, i64 N, i64 BR, bool kDims = false>
void check_reductions(i64 rows, i64 cols, int special = 0) {
  Tensor<X> x(rows * cols, 7);
  const auto put = [&](i64 i, float v) { x.v[static_cast<size_t>(i)] = from_acc<X>(v); };
  if (special == 1) put(cols + cols / 2, NAN), put(cols + cols - 1, NAN);
  if (special == 2)
    for (i64 i = 0; i < rows * cols; ++i)
      put(i, i % 5 == 3 ? 2.0f : i % 7 == 0 ? -static_cast<float>(HUGE_VAL) : 1.0f);
  Tensor<float> sum(rows), mean(rows);
  Tensor<X> most(rows), soft(rows * cols);
  Tensor<i32> place(rows);
  using C = Row<X, float, N, BR, ops::ReduceKind::sum, kDims>;
  using Mean = Row<X, float, N, BR, ops::ReduceKind::mean, kDims>;
  using Max = Row<X, X, N, BR, ops::ReduceKind::max, kDims>;
  using Arg = Row<X, i32, N, BR, ops::ReduceKind::sum, kDims>;
  run_rows(rows, BR, {x.data(), sum.data()}, {cols},
           [](auto& ctx, auto args, u32 t) { ops::reduce<C>(ctx, args, t); });
  run_rows(rows, BR, {x.data(), most.data()}, {cols},
           [](auto& ctx, auto args, u32 t) { ops::reduce<Max>(ctx, args, t); });
  run_rows(rows, BR, {x.data(), place.data()}, {cols},
           [](auto& ctx, auto args, u32 t) { ops::argmax<Arg>(ctx, args, t); });
  constexpr bool floats = is_same<AccOf<X>, float>;
  if constexpr (floats) {
    run_rows(rows, BR, {x.data(), mean.data()}, {cols},
             [](auto& ctx, auto args, u32 t) { ops::reduce<Mean>(ctx, args, t); });
    run_rows(rows, BR, {x.data(), soft.data()}, {cols},
             [](auto& ctx, auto args, u32 t) { ops::softmax<Max>(ctx, args, t); });
  }
  std::vector<double> sums, means, mosts, softs;
  for (i64 r = 0; r < rows; ++r) {
    double total = 0, top = x[r * cols], exps = 0;
    i32 wrapped = 0, best = 0;
    for (i64 i = 0; i < cols; ++i) {
      const double v = x[r * cols + i];
      total += v;
      wrapped = fn::add(wrapped, static_cast<i32>(std::isnan(v) || std::isinf(v) ? 0 : v));
      const double b = x[r * cols + best];
      if (!std::isnan(b) && (std::isnan(v) || v > b)) best = static_cast<i32>(i);
    }
    top = x[r * cols + best];
    for (i64 i = 0; i < cols; ++i) exps += std::exp(x[r * cols + i] - top);
    for (i64 i = 0; i < cols; ++i) softs.push_back(std::exp(x[r * cols + i] - top) / exps);
    sums.push_back(floats ? total : static_cast<double>(static_cast<float>(wrapped)));
    means.push_back(total / static_cast<double>(cols));
    mosts.push_back(top);
    CHECK(place.v[static_cast<size_t>(r)] == best);
  }
  INFO("rows " << rows << " cols " << cols << " special " << special);
  CHECK(error_of(sum, sums) < 3e-6);
  CHECK(error_of(most, mosts) == 0);
  if (floats) {
    CHECK(error_of(mean, means) < 3e-6);
    CHECK(error_of(soft, softs) < bound_of<X>());
  }
}
// A thread's share of a long row of equal elements, where all roundings go one way. As long as a
// sum of two levels and one of three.
template <i64 kSteps>
double error_of_long_sum() {
  Sum<float, kSteps> sum;
  for (i64 k = 0; k < kSteps; ++k) {
    sum.add(0, 0.1f);
    sum.added(k);
  }
  return std::abs(sum.total() / (static_cast<double>(0.1f) * kSteps) - 1);
}
inline void check_long_sums() {
  CHECK(error_of_long_sum<100000>() < 2e-6);
  CHECK(error_of_long_sum<3000001>() < 2e-6);
}
inline void check_all_reductions() {
  check_reductions<f32, 1, 4>(3, 1);
  check_reductions<f32, 100, 4>(9, 100);
  check_reductions<bf16, 37, 8>(11, 37);
  check_reductions<f16, 2056, 1>(2, 2056);
  check_reductions<f32, 20011, 1>(2, 20011);
  check_reductions<i32, 300, 2>(5, 300);
  check_reductions<u8, 333, 2>(5, 333);
  check_reductions<i32, 4096, 2>(3, 4096);
  check_reductions<f32, 64, 1, true>(1, 41);
  check_reductions<f32, 5000, 1, true>(1, 3);
  for (int special : {1, 2}) {
    check_reductions<f32, 100, 4>(3, 100, special);
    check_reductions<bf16, 2500, 4>(3, 2500, special);
  }
}

// ---- rope -------------------------------------------------------------------

// kBegin: columns of x in front of those that turn, and behind them. kRest: elements of a head that
// don't turn.
template <class X_, i64 H_, i64 D_, bool kInterleaved, bool kPositions, i64 kBegin = 0,
          i64 kRest = 0>
struct Rope {
  using X = X_;
  using Y = X_;
  using rows = Value<0>;
  using position = Value<1>;
  static constexpr i64 H = H_, D = D_, R = D_ - kRest, BR = 2, x_begin = kBegin,
                       x_cols = H * D + 2 * x_begin;
  static constexpr bool interleaved = kInterleaved, from_positions = kPositions;
  static constexpr double factor = kRest > 0 ? 1.25 : 1;
  static double frequency(i64 pair) {
    return std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(R));
  }
  static u64 turns(int pair) {
    return static_cast<u64>(std::ldexp(frequency(pair) / (2 * 3.14159265358979323846), 64));
  }
};
// Rows of x at positions from `position` on, and what becomes of them: Angle gives for a row, a
// pair and its first or second element (0, 1) the cosine and sine.
template <class C>
struct Turning {
  i64 rows;
  Tensor<typename C::X> x{rows * C::x_cols, 5};
  Tensor<typename C::Y> y{rows * C::H * C::D};
  Tensor<i32> positions{rows};

  Turning(i64 count, i64 position) : rows(count) {
    for (i64 r = 0; r < rows; ++r)
      positions.v[static_cast<size_t>(r)] = static_cast<i32>(position + r);
  }
  // x, what C turns by, (positions), y.
  std::vector<void*> operands(const std::vector<void*>& given) {
    std::vector<void*> all = {x.data()};
    all.insert(all.end(), given.begin(), given.end());
    if (C::from_positions) all.push_back(positions.data());
    all.push_back(y.data());
    return all;
  }
  template <class Angle>
  void check(Angle angle) const {
    std::vector<double> expected(static_cast<size_t>(rows * C::H * C::D));
    for (i64 r = 0; r < rows; ++r)
      for (i64 h = 0; h < C::H; ++h) {
        const i64 from = r * C::x_cols + C::x_begin + h * C::D, to = (r * C::H + h) * C::D;
        for (i64 i = C::R; i < C::D; ++i) expected[static_cast<size_t>(to + i)] = x[from + i];
        for (i64 i = 0; i < C::R / 2; ++i) {
          const i64 first = C::interleaved ? 2 * i : i,
                    second = C::interleaved ? 2 * i + 1 : i + C::R / 2;
          const double a = x[from + first], b = x[from + second];
          const auto [c0, s0] = angle(r, i, 0);
          const auto [c1, s1] = angle(r, i, 1);
          expected[static_cast<size_t>(to + first)] = C::factor * (a * c0 - b * s0);
          expected[static_cast<size_t>(to + second)] = C::factor * (b * c1 + a * s1);
        }
      }
    INFO("rows " << rows << " first " << positions[0] << " D " << C::D << " R " << C::R);
    CHECK(error_of(y, expected) < bound_of<typename C::Y>());
  }
};
template <class C>
void check_rope(i64 rows, i64 position) {
  Turning<C> t(rows, position);
  run_rows(rows, C::BR, t.operands({}), {position},
           [](auto& ctx, auto args, u32 tile) { ops::rope<C>(ctx, args, tile); });
  t.check([&](i64 r, i64 i, int) {
    const double angle = static_cast<double>(position + r) * C::frequency(i);
    return std::pair(std::cos(angle), std::sin(angle));
  });
}
// Frequencies from one near `first` on, of both signs, and 0.
template <class C>
void check_frequencies(i64 rows, i64 position, double first) {
  Turning<C> t(rows, position);
  Tensor<f32> radians(C::R / 2);
  for (i64 i = 0; i < C::R / 2; ++i)
    radians.v[static_cast<size_t>(i)] = static_cast<f32>(
        i == 1 ? 0 : (i % 3 == 0 ? first : -first) * std::pow(0.7, static_cast<double>(i)));
  run_rows(rows, C::BR, t.operands({radians.data()}), {position},
           [](auto& ctx, auto args, u32 tile) { ops::rope_frequencies<C>(ctx, args, tile); });
  t.check([&](i64 r, i64 i, int) {
    const double angle = static_cast<double>(position + r) * static_cast<double>(radians[i]);
    return std::pair(std::cos(angle), std::sin(angle));
  });
}
// Cosines and sines of kCols columns: 2 and 3 where a position has row 0, one more each row.
template <class C_, class T_, i64 kCols>
struct Tabled : C_ {
  using T = T_;
  using limit = Value<2>;
  static constexpr i64 table_cols = kCols;
};
template <class C>
void check_tables(i64 rows, i64 position, i64 limit) {
  Turning<C> t(rows, position);
  Tensor<typename C::T> cosines(limit * C::table_cols, 7), sines(limit * C::table_cols, 8);
  run_rows(rows, C::BR, t.operands({cosines.data(), sines.data()}), {position, limit},
           [](auto& ctx, auto args, u32 tile) { ops::rope_tables<C>(ctx, args, tile); });
  t.check([&](i64 r, i64 i, int element) {
    i64 column = i;
    if (C::table_cols == C::R) column = C::interleaved ? 2 * i + element : i + element * (C::R / 2);
    const i64 at = (position + r) * C::table_cols + column;
    return std::pair(static_cast<double>(cosines[at]), static_cast<double>(sines[at]));
  });
}
// To the nearest of 2^64 parts of a turn; each power of 2 takes other digits of 1 / (2 pi), and a
// double holds the product of what turns little.
inline void check_turns() {
  constexpr double kTurn = 6.283185307179586476925286766559;
  for (int exponent = -60; exponent < 30; ++exponent)
    for (float mantissa : {1.0f, 1.9999999f, -1.3f}) {
      const float f = std::ldexp(mantissa, exponent);
      const double angle = static_cast<double>(ops::turns_of(f)) * std::ldexp(kTurn, -64);
      INFO(f);
      CHECK(std::abs(std::cos(angle) - std::cos(static_cast<double>(f))) < 4e-15);
      CHECK(std::abs(std::sin(angle) - std::sin(static_cast<double>(f))) < 4e-15);
      CHECK(ops::turns_of(-f) == ~ops::turns_of(f) + 1);
    }
  // Worked out with 120 digits.
  CHECK(ops::turns_of(0.0f) == 0);
  CHECK(ops::turns_of(-0.0f) == 0);
  CHECK(ops::turns_of(1.0f) == 0x28be60db9391054au);
  CHECK(ops::turns_of(0x1.fffffep0f) == 0x517cc165aa60536eu);
  CHECK(ops::turns_of(-0.1f) == 0xfbecf64f6c7be062u);
  CHECK(ops::turns_of(0x1.fffffep127f) == 0xe9a1352f766b7dc1u);
  CHECK(ops::turns_of(0x1.8p-126f) == 0x0u);
  CHECK(ops::turns_of(0x1p-149f) == 0x0u);
  CHECK(ops::turns_of(0x1.921fb6p2f) == 0x7784b2cf1fu);
  CHECK(ops::turns_of(0x1.23456p-62f) == 0x1u);
  CHECK(ops::turns_of(-0x1.abcdeep90f) == 0x96e53a44d2987997u);
  CHECK(ops::turns_of(0x1.5p-44f) == 0x3579eu);
}
inline void check_ropes() {
  check_turns();
  check_tables<Tabled<Rope<f32, 3, 128, false, false>, f32, 128>>(3, 2, 5);
  check_tables<Tabled<Rope<bf16, 2, 64, true, true, 8>, f32, 64>>(4, 1, 9);
  check_tables<Tabled<Rope<f16, 5, 6, true, false>, f16, 3>>(3, 0, 3);
  check_tables<Tabled<Rope<bf16, 32, 64, false, true, 8>, bf16, 32>>(5, 100, 200);
  check_tables<Tabled<Rope<bf16, 3, 96, false, true, 8, 24>, f32, 72>>(5, 100, 200);
  check_tables<Tabled<Rope<f16, 3, 96, true, false, 0, 90>, f16, 3>>(5, 100, 200);
  check_rope<Rope<f32, 3, 128, false, false>>(3, 0);
  check_rope<Rope<f32, 1, 64, true, false>>(5, 131072);
  check_rope<Rope<f32, 5, 2, false, true>>(3, 1000000);
  check_rope<Rope<bf16, 2, 6, true, true>>(4, 17);
  check_rope<Rope<f16, 1, 1024, false, false>>(1, 4095);
  check_rope<Rope<bf16, 32, 64, false, false, 8>>(5, 100);
  check_rope<Rope<bf16, 3, 64, true, false, 8>>(5, 100);
  check_rope<Rope<bf16, 40, 16, false, true, 3>>(4, 9);
  check_rope<Rope<f32, 2, 6, true, true, 1>>(4, 17);
  check_rope<Rope<f16, 2, 8192, false, false, 2>>(2, 4095);
  // 72 of 96 elements are rotated, and other numbers, aligned or not.
  check_rope<Rope<bf16, 5, 96, false, false, 0, 24>>(5, 8191);
  check_rope<Rope<bf16, 5, 96, true, true, 8, 94>>(3, 131071);
  check_rope<Rope<f16, 40, 96, false, true, 0, 2>>(3, 1);
  check_rope<Rope<f16, 2, 8192, true, false, 2, 4096>>(2, 0);
  check_rope<Rope<f32, 7, 6, false, true, 1, 2>>(4, 17);
  check_frequencies<Rope<f32, 3, 128, false, false>>(3, 0, 1);
  check_frequencies<Rope<f32, 3, 128, true, true>>(3, 131071, 40);
  check_frequencies<Rope<bf16, 32, 64, false, true, 8>>(5, 8191, 1);
  check_frequencies<Rope<bf16, 5, 96, false, false, 0, 24>>(5, 131071, 0.01);
  check_frequencies<Rope<f16, 5, 96, true, true, 8, 94>>(3, 131071, 1e6);
  check_frequencies<Rope<f16, 40, 96, false, false, 0, 2>>(3, 1, 3);
}

// ---- attention --------------------------------------------------------------

template <class Q_, class K_, class Y_, i64 HQ_, i64 HKV_, i64 D_, i64 BQ_, bool kCausal>
struct Attend {
  using Q = Q_;
  using K = K_;
  using V = K_;
  using Y = Y_;
  using rows = Value<0>;
  using length = Value<1>;
  static constexpr i64 HQ = HQ_, HKV = HKV_, D = D_, BQ = BQ_, q_cols = HQ * D, q_begin = 0;
  static constexpr bool causal = kCausal;
  static constexpr double scale = 0.3, softcap = 0;
  static constexpr i64 window = 0;
};
// The same of any of them, with a window, and with scores that are capped.
template <i64 kWindow, class C>
struct InWindow : C {
  static constexpr i64 window = kWindow;
};
template <class C>
struct Capped : C {
  static constexpr double softcap = 0.7;
};
template <class C>
i64 first_key(i64 sees) {
  return C::window > 0 ? std::max<i64>(sees - C::window, 0) : 0;
}
// Known when it is compiled.
template <class C>
struct OneRow : C {
  using rows = Const<1>;
};
// What no row sees in front of the windows of `rows` rows may be anything.
template <class C, class T>
void spoil(Tensor<T>& keys, i64 rows, i64 length) {
  for (i64 i = 0; i < first_key<C>(length - rows + 1) * C::HKV * C::D; ++i)
    keys.v[static_cast<size_t>(i)] = from_acc<T>(NAN);
}
template <class C>
double score_of(double product) {
  const double score = product * C::scale;
  return C::softcap > 0 ? C::softcap * std::tanh(score / C::softcap) : score;
}
template <class C>
void check_attention(i64 rows, i64 length) {
  const i64 width = C::HKV * C::D;
  Tensor<typename C::Q> q(rows * C::HQ * C::D, 1, 2);
  Tensor<typename C::K> k(length * width, 2, 2), v(length * width, 3);
  spoil<C>(k, rows, length), spoil<C>(v, rows, length);
  Tensor<typename C::Y> y(rows * C::HQ * C::D);
  const i64 tiles = ((rows + C::BQ - 1) / C::BQ + 1) * C::HQ;
  for (i64 t = 0; t < tiles; ++t)
    run_tile(
        {q.data(), k.data(), v.data(), y.data()}, {rows, length}, 0, [](Context&) {},
        [&](Context& ctx) { ops::attention<C>(ctx, Args{ctx, nullptr}, static_cast<u32>(t)); });
  std::vector<double> expected;
  for (i64 r = 0; r < rows; ++r)
    for (i64 h = 0; h < C::HQ; ++h) {
      const i64 sees = C::causal ? length - rows + r + 1 : length, kv = h / (C::HQ / C::HKV) * C::D;
      std::vector<double> scores, out(static_cast<size_t>(C::D), 0);
      const i64 first = first_key<C>(sees);
      for (i64 j = first; j < sees; ++j) {
        double dot = 0;
        for (i64 d = 0; d < C::D; ++d) dot += q[(r * C::HQ + h) * C::D + d] * k[j * width + kv + d];
        scores.push_back(score_of<C>(dot));
      }
      double total = 0;
      for (double s : scores) total += std::exp(s);
      for (i64 j = first; j < sees; ++j)
        for (i64 d = 0; d < C::D; ++d)
          out[static_cast<size_t>(d)] +=
              std::exp(scores[static_cast<size_t>(j - first)]) / total * v[j * width + kv + d];
      expected.insert(expected.end(), out.begin(), out.end());
    }
  INFO("rows " << rows << " length " << length << " D " << C::D << " window " << C::window);
  CHECK(error_of(y, expected) < bound_of<typename C::Y>());
}
inline void check_attentions() {
  check_attention<Attend<f32, f32, f32, 2, 1, 64, 1, true>>(1, 1);
  check_attention<Attend<bf16, bf16, bf16, 4, 2, 128, 1, true>>(1, 300);
  check_attention<Attend<f32, bf16, f32, 2, 2, 32, 4, true>>(9, 70);
  check_attention<Attend<f32, f32, f32, 1, 1, 80, 8, true>>(33, 33);
  check_attention<Attend<f32, f32, f32, 3, 1, 7, 8, false>>(5, 41);
  check_attention<Attend<f16, f8e4m3, f16, 1, 1, 256, 2, false>>(3, 65);
  check_attention<Attend<f32, f32, f32, 1, 1, 16, 4, true>>(10, 4);  // the first six see nothing
  check_attention<Attend<f32, f32, f32, 1, 1, 1, 8, true>>(2, 600);
  check_attention<InWindow<1, Attend<f32, f32, f32, 2, 1, 64, 4, true>>>(9, 70);
  check_attention<InWindow<37, Attend<bf16, bf16, bf16, 4, 2, 128, 1, true>>>(1, 300);
  check_attention<InWindow<64, Attend<f32, bf16, f32, 2, 2, 32, 4, true>>>(9, 700);
  check_attention<InWindow<3, Attend<f32, f32, f32, 1, 1, 80, 8, true>>>(33, 33);
  check_attention<InWindow<5, Attend<f32, f32, f32, 1, 1, 16, 4, true>>>(10, 4);
  check_attention<InWindow<100, Attend<f32, f32, f32, 1, 1, 16, 4, true>>>(3, 40);
  check_attention<Capped<Attend<f16, f8e4m3, f16, 1, 1, 256, 2, false>>>(3, 65);
  check_attention<Capped<InWindow<300, Attend<f32, f32, f32, 2, 1, 8, 8, true>>>>(12, 650);
}

// On tensor cores: HB heads and BT rows a task.
template <class X_, class Y_, i64 HQ_, i64 HKV_, i64 D_, i64 HB_, i64 BT_, bool kCausal,
          bool kNegative = false, bool kGroups = false>
struct AttendTile {
  using X = X_;
  using Y = Y_;
  using rows = Value<0>;
  using length = Value<1>;
  static constexpr i64 HQ = HQ_, HKV = HKV_, D = D_, HB = HB_, BT = BT_, q_cols = HQ * D,
                       q_begin = 0;
  static constexpr bool causal = kCausal, boxes = false, wgmma = kGroups;
  static constexpr double scale = kNegative ? -0.3 : 0.3, softcap = 0;
  static constexpr i64 window = 0;
};
// In base 2 such scores grow, and kLeast times the factor would not be finite.
template <class C>
struct SteepScores : C {
  static constexpr double scale = 1.1;
};
// Scores of millions, so that hardly more than one key of a row counts.
template <class C>
struct LargeScores : C {
  static constexpr double scale = 3e5 * C::scale;
};
// `odd`: a value of the last key, which only the last row sees where causal, that is no number;
// with a window one of the first row's first key, too.
template <class C>
void check_attention_tile(i64 rows, i64 length, bool odd = false) {
  using X = typename C::X;
  const i64 width = C::HKV * C::D, behind = 3;  // rows that don't count
  Tensor<X> q(rows * C::HQ * C::D, 1, 2), k((length + behind) * width, 2, 2),
      v((length + behind) * width, 3);
  for (i64 i = length * width; i < (length + behind) * width; ++i)
    k.v[static_cast<size_t>(i)] = v.v[static_cast<size_t>(i)] = from_acc<X>(NAN);
  spoil<C>(k, rows, length), spoil<C>(v, rows, length);
  if (odd) v.v[static_cast<size_t>((length - 1) * width)] = from_acc<X>(HUGE_VALF);
  if (odd && C::window > 0)
    v.v[static_cast<size_t>(first_key<C>(length - rows + 1) * width)] = from_acc<X>(HUGE_VALF);
  Tensor<typename C::Y> y(rows * C::HQ * C::D);
  const i64 tiles = ((rows + C::BT - 1) / C::BT + 1) * (C::HQ / C::HB);
  for (i64 t = 0; t < tiles; ++t)
    run_tile(
        {q.data(), k.data(), v.data(), y.data()}, {rows, length}, 16384,
        [&](Context& ctx) {
          ops::attention_tile_load<C>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
        },
        [&](Context& ctx) {
          ops::attention_tile<C>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
        });
  std::vector<double> expected;
  for (i64 r = 0; r < rows; ++r)
    for (i64 h = 0; h < C::HQ; ++h) {
      const i64 sees = C::causal ? length - rows + r + 1 : length, kv = h / (C::HQ / C::HKV) * C::D;
      std::vector<double> weights, out(static_cast<size_t>(C::D), 0);
      double total = 0, top = -HUGE_VAL;
      const i64 first = first_key<C>(sees);
      for (i64 j = first; j < sees; ++j) {
        double dot = 0;
        for (i64 d = 0; d < C::D; ++d) dot += q[(r * C::HQ + h) * C::D + d] * k[j * width + kv + d];
        weights.push_back(score_of<C>(dot));
        top = std::max(top, weights.back());
      }
      for (double& weight : weights) total += weight = std::exp(weight - top);
      for (i64 j = first; j < sees; ++j)
        for (i64 d = 0; d < C::D; ++d)
          out[static_cast<size_t>(d)] +=
              weights[static_cast<size_t>(j - first)] / total * v[j * width + kv + d];
      expected.insert(expected.end(), out.begin(), out.end());
    }
  INFO("rows " << rows << " length " << length << " D " << C::D << " odd " << odd << " window "
               << C::window);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!std::isfinite(expected[i])) {
      CHECK(y[static_cast<i64>(i)] == expected[i]);
      expected[i] = 0;
      y.v[i] = from_acc<typename C::Y>(0.0f);
    }
  CHECK(error_of(y, expected) < bound_of<typename C::Y>());
}
inline void check_attention_tiles() {
  check_attention_tile<AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true>>(40, 40);
  check_attention_tile<AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true>>(33, 200, true);
  check_attention_tile<AttendTile<f16, f16, 4, 2, 128, 2, 16, true>>(17, 150);
  check_attention_tile<AttendTile<bf16, bf16, 2, 1, 128, 2, 32, true>>(31, 90, true);
  check_attention_tile<AttendTile<bf16, f32, 2, 2, 80, 1, 16, false>>(5, 70);
  check_attention_tile<AttendTile<bf16, f16, 2, 1, 64, 2, 16, true>>(33, 90, true);
  check_attention_tile<AttendTile<f16, bf16, 2, 1, 40, 2, 16, true, true>>(20, 21);
  check_attention_tile<AttendTile<bf16, bf16, 3, 1, 8, 3, 16, true>>(30, 12);  // 18 see nothing
  check_attention_tile<SteepScores<AttendTile<bf16, bf16, 3, 1, 8, 3, 16, true>>>(30, 12);
  check_attention_tile<AttendTile<f16, f16, 1, 1, 64, 1, 128, true>>(130, 300);
  check_attention_tile<LargeScores<AttendTile<f16, f16, 2, 1, 64, 2, 32, true>>>(40, 200);
  check_attention_tile<LargeScores<AttendTile<bf16, bf16, 1, 1, 64, 1, 32, false, true>>>(33, 12);
  check_attention_tile<InWindow<1, AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true>>>(33, 200);
  check_attention_tile<InWindow<50, AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true>>>(40, 40, true);
  check_attention_tile<InWindow<150, AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true>>>(33, 420, true);
  check_attention_tile<InWindow<128, AttendTile<f16, f16, 4, 2, 128, 2, 16, true>>>(17, 300, true);
  check_attention_tile<InWindow<9, AttendTile<bf16, f32, 2, 2, 80, 1, 16, true>>>(25, 70, true);
  check_attention_tile<InWindow<70, AttendTile<f16, f16, 1, 1, 64, 1, 128, true>>>(130, 500);
  check_attention_tile<InWindow<50, AttendTile<bf16, bf16, 16, 1, 16, 16, 4, true>>>(5, 190);
  check_attention_tile<InWindow<3, AttendTile<bf16, bf16, 3, 1, 8, 3, 16, true>>>(30, 12);
  check_attention_tile<Capped<AttendTile<bf16, f32, 2, 2, 80, 1, 16, false>>>(5, 70);
  check_attention_tile<Capped<InWindow<40, AttendTile<f16, bf16, 2, 1, 40, 2, 16, true, true>>>>(
      20, 90);
  check_attention_tile<LargeScores<Capped<AttendTile<f16, f16, 2, 1, 64, 2, 32, true>>>>(40, 200);
  // Four warps together.
  check_attention_tile<AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true, false, true>>(40, 300);
  check_attention_tile<AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true, false, true>>(33, 200, true);
  check_attention_tile<AttendTile<f16, f16, 2, 1, 128, 2, 16, true, false, true>>(17, 150);
  check_attention_tile<AttendTile<bf16, bf16, 2, 1, 128, 2, 64, true, false, true>>(70, 90, true);
  check_attention_tile<AttendTile<bf16, bf16, 2, 1, 128, 2, 16, true, false, true>>(18, 410);
  check_attention_tile<AttendTile<f16, f16, 1, 1, 64, 1, 128, false, true, true>>(130, 260);
  check_attention_tile<AttendTile<bf16, bf16, 2, 2, 64, 1, 64, true, false, true>>(90, 12);
  check_attention_tile<SteepScores<AttendTile<bf16, bf16, 1, 1, 64, 1, 64, true, false, true>>>(60,
                                                                                                20);
  check_attention_tile<LargeScores<AttendTile<f16, f16, 2, 1, 64, 2, 64, true, false, true>>>(70,
                                                                                              300);
  using Shared = AttendTile<bf16, bf16, 4, 1, 64, 4, 32, true, false, true>;
  using Alone = AttendTile<f16, f16, 1, 1, 64, 1, 128, true, false, true>;
  using Long = AttendTile<bf16, bf16, 2, 1, 128, 2, 64, true, false, true>;
  check_attention_tile<InWindow<1, Shared>>(40, 300);
  check_attention_tile<InWindow<200, Shared>>(33, 520, true);
  check_attention_tile<InWindow<31, Alone>>(130, 260, true);
  check_attention_tile<InWindow<290, Alone>>(130, 700);
  check_attention_tile<InWindow<130, Long>>(70, 400, true);
  check_attention_tile<InWindow<257, Long>>(70, 600);
  check_attention_tile<Capped<InWindow<20, Shared>>>(90, 12);
  check_attention_tile<LargeScores<Capped<Long>>>(70, 90);
}

// ---- attention of new rows over a cache --------------------------------------

// q, k and v lie side by side, with two elements before, between and behind them.
template <class X_, i64 HQ_, i64 HKV_, i64 D_, i64 HB_, i64 BT_, i64 kSplits, bool kCausal,
          bool kTurned, bool kNormed>
struct StepOf {
  using X = X_;
  using Y = std::conditional_t<(kSplits > 1), float, X_>;
  using N = X_;
  using rows = Value<0>;
  using length = Value<1>;
  using position = Value<2>;
  static constexpr i64 HQ = HQ_, HKV = HKV_, D = D_, HB = HB_, BT = BT_, splits = kSplits,
                       pages = kSplits > 1 ? 1 : 2;
  static constexpr i64 q_begin = 2, k_begin = q_begin + HQ * D + 2, v_begin = k_begin + HKV * D + 2,
                       q_cols = v_begin + HKV * D + 2, k_cols = q_cols, v_cols = q_cols;
  static constexpr bool boxes = false, causal = kCausal, turned = kTurned,
                        interleaved = D_ % 16 == 0, q_normed = kNormed, k_normed = kNormed,
                        stored = false, tabled = false, q_packets = false, k_packets = false,
                        v_packets = false, y_packets = false, parts_packets = false;
  using T = f32;
  static constexpr i64 table_cols = 0, R = D, window = 0;
  static constexpr bool by_radians = false;
  static constexpr double scale = 0.3, softcap = 0, q_eps = 1e-3, k_eps = 1e-2, factor = 1;
  static double frequency(i64 pair) {
    return std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(D));
  }
  static u64 turns(int pair) {
    return static_cast<u64>(std::ldexp(frequency(pair) / (2 * 3.14159265358979323846), 64));
  }
};
template <class C>
struct MergeOf : C {
  using Y = typename C::X;
};
// What it reads of a product, and what it gives, are packets.
template <class C>
struct StepInPackets : C {
  static constexpr bool q_packets = true, k_packets = true, v_packets = true, y_packets = true,
                        parts_packets = true;
};
// Norms of another type.
template <class C, class N_>
struct StepWithNorms : C {
  using N = N_;
};
// Tables of kCols columns hold the cosines and sines of the same angles.
template <class C, i64 kCols>
struct StepByTables : C {
  static constexpr bool tabled = true;
  static constexpr i64 table_cols = kCols;
};
// kRotary elements of each head are rotated, by the angles of a head of D; kRadians: frequencies
// are an operand.
template <class C, i64 kRotary, bool kRadians>
struct StepOfPart : C {
  static constexpr i64 R = kRotary;
  static constexpr bool by_radians = kRadians;
  static constexpr double factor = 1.25;
};
// A head as it is prepared, each step rounded.
template <class C, class T>
std::vector<double> prepared(const T& from, i64 at, const Tensor<typename C::N>& w, double eps,
                             i64 position, bool turned) {
  const auto rounded = [](double v) {
    return static_cast<double>(to_acc(from_acc<typename C::X>(static_cast<float>(v))));
  };
  std::vector<double> x;
  double squares = 0;
  for (i64 d = 0; d < C::D; ++d) x.push_back(from[at + d]), squares += x.back() * x.back();
  if (eps > 0)
    for (i64 d = 0; d < C::D; ++d) {
      double& v = x[static_cast<size_t>(d)];
      v = rounded(v / std::sqrt(squares / static_cast<double>(C::D) + eps) * w[d]);
    }
  for (i64 i = 0; turned && i < C::R / 2; ++i) {
    const double angle = static_cast<double>(position) * C::frequency(i);
    double &a = x[static_cast<size_t>(C::interleaved ? 2 * i : i)],
           &b = x[static_cast<size_t>(C::interleaved ? 2 * i + 1 : i + C::R / 2)];
    const double first = C::factor * (a * std::cos(angle) - b * std::sin(angle));
    b = rounded(C::factor * (b * std::cos(angle) + a * std::sin(angle)));
    a = rounded(first);
  }
  return x;
}
template <class C>
void check_step(i64 rows, i64 length, bool odd = false) {
  using X = typename C::X;
  const i64 width = C::HKV * C::D, position = 7, old = length - rows;
  Tensor<typename C::N> qw(C::D, 4), kw(C::D, 5);
  Tensor<X> qkv(rows * C::q_cols, 1, 2), keys(length * width, 2, 2), values(length * width, 3),
      new_k(rows * width), new_v(rows * width), y(rows * C::HQ * C::D);
  Tensor<float> parts(rows * C::splits * C::HQ * (C::D + 2));
  spoil<C>(keys, rows, length), spoil<C>(values, rows, length);
  // A value that the first rows don't see; with a window one that only the first sees, too.
  if (odd && C::window > 0 && first_key<C>(old + 1) < old)
    values.v[static_cast<size_t>(first_key<C>(old + 1) * width)] = from_acc<X>(HUGE_VALF);
  if (odd) qkv.v[static_cast<size_t>((rows - 1) * C::q_cols + C::v_begin)] = from_acc<X>(HUGE_VALF);
  std::vector<void*> operands = {qkv.data(),    qkv.data(),
                                 qkv.data(),    keys.data(),
                                 values.data(), C::splits > 1 ? parts.data() : y.data(),
                                 new_k.data(),  new_v.data()};
  Tensor<f32> cosines((position + rows) * C::table_cols), sines(cosines);
  for (i64 r = 0; r < position + rows; ++r)
    for (i64 c = 0; c < C::table_cols; ++c) {
      const bool each = C::table_cols == C::R;
      const i64 pair = !each ? c : C::interleaved ? c / 2 : c % (C::R / 2);
      const double angle = static_cast<double>(r) * C::frequency(pair);
      cosines.v[static_cast<size_t>(r * C::table_cols + c)] = static_cast<f32>(std::cos(angle));
      sines.v[static_cast<size_t>(r * C::table_cols + c)] = static_cast<f32>(std::sin(angle));
    }
  Tensor<f32> radians(C::R / 2);
  for (i64 i = 0; i < C::R / 2; ++i)
    radians.v[static_cast<size_t>(i)] = static_cast<f32>(C::frequency(i));
  if (C::tabled) operands.insert(operands.end(), {cosines.data(), sines.data()});
  if (C::by_radians) operands.push_back(radians.data());
  if (C::q_normed) operands.insert(operands.end(), {qw.data(), kw.data()});
  auto qkv_words = in_packets(qkv), y_words = in_packets(y);
  auto part_words = in_packets(parts);
  for (auto& word : y_words) word = ~word;  // of another launch
  for (auto& word : part_words) word = ~word;
  if (C::q_packets) {
    operands[0] = operands[1] = operands[2] = qkv_words.data();
    operands[5] = C::splits > 1 ? static_cast<void*>(part_words.data()) : y_words.data();
  }
  const std::vector<i64> scalars = {rows, length, position};
  const i64 tiles = ((rows + C::BT - 1) / C::BT + 1) * (C::HQ / C::HB) * C::splits;
  for (i64 t = 0; t < tiles; ++t)
    run_tile(
        operands, scalars, 16384,
        [&](Context& ctx) {
          ops::attention_step_load<C>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
        },
        [&](Context& ctx) {
          ops::attention_step<C>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
        });
  if constexpr (C::splits > 1)
    for (i64 t = 0; t < (rows + 1) * (C::HQ / C::HB); ++t)
      run_tile(
          C::q_packets ? std::vector<void*>{part_words.data(), y_words.data()}
                       : std::vector<void*>{parts.data(), y.data()},
          scalars, 0, [](Context&) {},
          [&](Context& ctx) {
            ops::attention_merge<MergeOf<C>>(ctx, Args{ctx, nullptr}, static_cast<u32>(t));
          });
  if (C::q_packets) out_of_packets(y_words, y);
  std::vector<double> expected, expected_k, expected_v;
  for (i64 r = 0; r < rows; ++r)
    for (i64 h = 0; h < C::HKV; ++h) {
      const auto k = prepared<C>(qkv, r * C::k_cols + C::k_begin + h * C::D, kw,
                                 C::k_normed ? C::k_eps : 0, position + r, C::turned);
      const auto v = prepared<C>(qkv, r * C::v_cols + C::v_begin + h * C::D, kw, 0, 0, false);
      expected_k.insert(expected_k.end(), k.begin(), k.end());
      expected_v.insert(expected_v.end(), v.begin(), v.end());
    }
  for (i64 r = 0; r < rows; ++r)
    for (i64 h = 0; h < C::HQ; ++h) {
      const i64 sees = C::causal ? old + r + 1 : length, kv = h / (C::HQ / C::HKV) * C::D;
      const auto q = prepared<C>(qkv, r * C::q_cols + C::q_begin + h * C::D, qw,
                                 C::q_normed ? C::q_eps : 0, position + r, C::turned);
      const auto at = [&](const Tensor<X>& cache, const std::vector<double>& fresh, i64 j, i64 d) {
        return j < old ? cache[j * width + kv + d]
                       : fresh[static_cast<size_t>((j - old) * width + kv + d)];
      };
      std::vector<double> weights, out(static_cast<size_t>(C::D), 0);
      double total = 0;
      const i64 first = first_key<C>(sees);
      for (i64 j = first; j < sees; ++j) {
        double dot = 0;
        for (i64 d = 0; d < C::D; ++d)
          dot += q[static_cast<size_t>(d)] * at(keys, expected_k, j, d);
        weights.push_back(std::exp(score_of<C>(dot)));
        total += weights.back();
      }
      for (i64 j = first; j < sees; ++j)
        for (i64 d = 0; d < C::D; ++d)
          out[static_cast<size_t>(d)] +=
              weights[static_cast<size_t>(j - first)] / total * at(values, expected_v, j, d);
      expected.insert(expected.end(), out.begin(), out.end());
    }
  INFO("rows " << rows << " length " << length << " D " << C::D << " splits " << C::splits);
  CHECK(error_of(y, expected) < bound_of<X>());
  CHECK(error_of(new_k, expected_k) < bound_of<X>());
  CHECK(error_of(new_v, expected_v) == 0);
}
inline void check_steps() {
  check_step<StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, false>>(1, 1);
  check_step<StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, true>>(1, 300);
  check_step<StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, true>>(1, 1200);
  check_step<StepOf<f16, 4, 2, 128, 2, 8, 1, true, true, true>>(9, 140);
  check_step<StepOf<bf16, 4, 4, 40, 1, 16, 1, false, false, true>>(3, 129);
  check_step<StepOf<f16, 32, 1, 8, 16, 1, 1, true, true, false>>(2, 19);
  check_step<StepOf<bf16, 6, 2, 72, 3, 5, 3, true, true, false>>(7, 700);
  check_step<StepOf<f16, 4, 1, 64, 4, 4, 4, true, false, false>>(4, 300);  // a split without keys
  check_step<StepOf<bf16, 8, 2, 64, 4, 4, 1, true, true, false>>(4, 50, true);
  check_step<StepOf<bf16, 8, 2, 128, 4, 2, 2, true, true, true>>(3, 400);  // eight rows of a tile
  check_step<StepOf<f16, 6, 2, 72, 3, 2, 1, true, true, false>>(3, 200);
  check_step<StepWithNorms<StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, true>, f32>>(1, 300);
  check_step<StepWithNorms<StepOf<f16, 4, 2, 128, 2, 8, 1, true, true, true>, bf16>>(9, 140);
  check_step<StepByTables<StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, true>, 64>>(1, 300);
  check_step<StepByTables<StepOf<f16, 6, 2, 72, 3, 2, 1, true, true, false>, 36>>(3, 200);
  using Few = StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, true>;
  using Odd = StepOf<f16, 6, 2, 72, 3, 2, 1, true, true, false>;
  check_step<StepOfPart<Few, 64, true>>(1, 300);
  check_step<StepOfPart<Few, 2, true>>(1, 300);
  check_step<StepOfPart<Odd, 70, true>>(3, 200);
  check_step<StepOfPart<Odd, 36, false>>(3, 200);
  check_step<StepOfPart<StepOf<bf16, 4, 2, 96, 2, 3, 2, true, true, true>, 72, true>>(3, 400);
  check_step<StepOfPart<StepByTables<Odd, 36>, 36, false>>(3, 200);
  check_step<StepInPackets<StepOfPart<Few, 48, true>>>(1, 300);
  check_step<StepInPackets<StepOf<bf16, 8, 2, 64, 4, 1, 1, true, true, true>>>(1, 300);
  check_step<StepInPackets<StepOf<bf16, 4, 4, 40, 1, 16, 1, false, false, true>>>(3, 129);
  check_step<StepInPackets<StepOf<bf16, 6, 2, 72, 3, 5, 3, true, true, false>>>(7, 700);
  using Wide = StepOf<bf16, 8, 2, 128, 4, 2, 2, true, true, true>;
  using Tall = StepOf<f16, 4, 2, 128, 2, 8, 1, true, true, true>;
  using Alone = StepOf<bf16, 4, 4, 40, 1, 16, 3, true, false, true>;
  check_step<InWindow<1, Few>>(1, 1);
  check_step<InWindow<1, Few>>(1, 300);
  check_step<InWindow<200, Few>>(1, 1200);
  check_step<InWindow<200, Few>>(1, 120);
  check_step<OneRow<InWindow<77, Few>>>(1, 700);
  check_step<InWindow<1, Tall>>(16, 16);
  check_step<InWindow<1, Tall>>(9, 140);
  check_step<InWindow<5, Tall>>(16, 140, true);
  check_step<InWindow<130, Tall>>(16, 140, true);
  check_step<InWindow<130, Tall>>(16, 700, true);
  check_step<InWindow<600, Tall>>(16, 900, true);  // a second round
  check_step<InWindow<3, Alone>>(16, 16, true);
  check_step<InWindow<16, Alone>>(16, 90, true);
  check_step<InWindow<400, Alone>>(13, 1000, true);
  check_step<InWindow<150, Wide>>(3, 400, true);
  check_step<InWindow<2, Wide>>(7, 60, true);
  check_step<Capped<Few>>(1, 300);
  check_step<Capped<InWindow<64, Odd>>>(3, 200, true);
  check_step<Capped<StepOf<bf16, 4, 4, 40, 1, 16, 1, false, false, true>>>(3, 129);
}
