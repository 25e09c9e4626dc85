#include "runtime/reference/fill.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "runtime/reference/numbers.h"
#include "runtime/reference/op.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

namespace {

// splitmix64's finalizer: a bijection that mixes every bit into every other.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
uint64_t key_of(uint64_t seed, std::string_view name, int rank) {
  uint64_t h = mix(seed + 0x9e3779b97f4a7c15u);
  for (char c : name) h = mix(h ^ static_cast<unsigned char>(c)) + 0x9e3779b97f4a7c15u;
  return mix(h ^ static_cast<uint64_t>(rank) << 32);
}
uint64_t random_bits(uint64_t key, uint64_t counter) {
  return mix(key + counter * 0x9e3779b97f4a7c15u);
}

// The Box-Muller method with a logarithm, sine and cosine of its own: the bits must not depend on a
// machine's mathematical library, and a large model has a billion weights. Everything below is
// branch-free, in loops that compilers vectorize; this doesn't change the bits, since nothing is
// fused or reordered.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MACO_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define MACO_WIDE
#endif

constexpr int kPairs = 1024;

// Element pairs from pairs of random words: `radius` of 24 bits, `turn` of 24 bits.
MACO_WIDE void normal_pairs(const uint32_t* radius, const uint32_t* turn, float scale, float* out) {
  for (int i = 0; i < kPairs; ++i) {
    // log u, u in (0, 1]: u = 2^e m, m in [sqrt(1/2), sqrt(2)); log m = 2 artanh((m - 1) / (m +
    // 1)).
    const float u = static_cast<float>(static_cast<int32_t>(radius[i] + 1)) * (1.0f / 16777216);
    const auto bits = std::bit_cast<int32_t>(u);
    const int32_t e = (bits - 0x3f3504f3) >> 23;
    const float m = std::bit_cast<float>(bits - e * 0x800000);
    const float q = (m - 1) / (m + 1), q2 = q * q;
    const float artanh =
        q * (1 + q2 * (0.33333333f + q2 * (0.2f + q2 * (0.14285714f + q2 * 0.11111111f))));
    const float log = static_cast<float>(e) * 0.69314718f + 2 * artanh;
    const float r = scale * std::sqrt(-2 * log);

    // The quarter of a full rotation, centred on quarter x 90 degrees, and the rest x in [-pi/4,
    // pi/4).
    const auto t = static_cast<int32_t>(turn[i]);
    const float x = static_cast<float>((t & 0x3fffff) - 0x200000) * (1.57079633f / 4194304),
                x2 = x * x;
    const float sine = x * (1 + x2 * (-0.16666667f + x2 * (0.0083333333f + x2 * -0.00019841270f)));
    const float cosine =
        1 + x2 * (-0.5f + x2 * (0.041666667f + x2 * (-0.0013888889f + x2 * 0.000024801587f)));
    const int32_t swap = -(t >> 22 & 1), flip = (t >> 23 & 1) << 31;
    const auto s = std::bit_cast<int32_t>(sine), c = std::bit_cast<int32_t>(cosine);
    const int32_t a = ((c & ~swap) | ((s ^ INT32_MIN) & swap)) ^ flip,
                  b = ((s & ~swap) | (c & swap)) ^ flip;
    out[2 * i] = r * std::bit_cast<float>(a);
    out[2 * i + 1] = r * std::bit_cast<float>(b);
  }
}

void fill_normal(Tensor& t, uint64_t key, float scale) {
  constexpr int64_t kChunk = 2 * kPairs;
  const int64_t n = t.elements();
  parallel_for((n + kChunk - 1) / kChunk, 5.0 * kChunk, [&](int64_t first, int64_t last) {
    std::vector<uint32_t> radius(kPairs), turn(kPairs);
    std::vector<float> v(kChunk);
    for (int64_t chunk = first; chunk < last; ++chunk) {
      for (size_t i = 0; i < kPairs; ++i) {
        const uint64_t bits = random_bits(key, static_cast<uint64_t>(chunk) * kPairs + i);
        radius[i] = static_cast<uint32_t>(bits >> 40);
        turn[i] = static_cast<uint32_t>(bits & 0xffffff);
      }
      normal_pairs(radius.data(), turn.data(), scale, v.data());
      encode(t.dtype, v.data(), std::min(kChunk, n - chunk * kChunk), t.element(chunk * kChunk));
    }
  });
}

// The integers from 0 to this are exact in the type.
int64_t exact_integers(ir::DType type) {
  switch (type) {
    case ir::DType::F32: return int64_t{1} << 24;
    case ir::DType::F16: return 1 << 11;
    case ir::DType::BF16: return 1 << 8;
    case ir::DType::F8E4M3: return 1 << 4;
    case ir::DType::F8E5M2: return 1 << 3;
    case ir::DType::I32: return std::numeric_limits<int32_t>::max();
    case ir::DType::U8: return 255;
  }
  return 0;
}

// How many values, from 0 on, are allowed by all ops that use elements of `tensor` as indices; 0 if
// there is no such op.
int64_t indexes(const ir::Graph& graph, const std::vector<Move>& moves, ir::TensorId tensor,
                std::set<ir::TensorId>& seen) {
  if (!seen.insert(tensor).second) return 0;
  int64_t most = 0;
  const auto limit = [&](int64_t n) { most = most == 0 ? n : std::min(most, n); };
  for (const ir::Op& op : graph.ops)
    if (op.in.size() > 1 && op.in[1] == tensor) {
      if (op.kind == "embedding") limit(graph[op.in[0]].shape[0].constant().value_or(1));
      // With tables, positions must be rows of theirs.
      if (op.kind == "rope" && op.attrs.count("position") == 0)
        limit(op.in.size() == 4 ? graph[op.in[2]].shape[0].constant().value_or(1) : 4096);
    }
  for (const Move& move : moves)
    if (move.from == tensor)
      if (const int64_t n = indexes(graph, moves, move.to, seen); n > 0) limit(n);
  return std::min(most, exact_integers(graph[tensor].dtype) + 1);
}

}  // namespace

FillRule fill_rule(const ir::Graph& graph, ir::TensorId tensor) {
  const ir::Tensor& t = graph[tensor];
  FillRule rule;
  if (t.kind == ir::TensorKind::State) {
    rule.kind = FillRule::Kind::Zero;
    return rule;
  }
  std::set<ir::TensorId> seen;
  if (const int64_t n = indexes(graph, moves_of(graph), tensor, seen); n > 0) {
    rule = {FillRule::Kind::Integers, 1, 0, n};
  } else if (t.dtype == ir::DType::U8) {
    rule = {FillRule::Kind::Integers, 1, 0, 16};
  } else if (!ir::is_float(t.dtype)) {
    rule = {FillRule::Kind::Integers, 1, -8, 8};
  } else if (t.kind == ir::TensorKind::Param) {
    const ir::Expr* k = t.shape.size() > 1 ? &t.shape.back() : nullptr;
    for (const ir::Op& op : graph.ops)
      if (op.kind == "matmul" && op.in[1] == tensor) {
        auto transposed = op.attrs.find("transpose_b");
        const bool* flag =
            transposed == op.attrs.end() ? nullptr : std::get_if<bool>(&transposed->second.value);
        k = flag && *flag ? &t.shape[1] : &t.shape[0];
        break;
      }
    if (k) rule.scale = 1 / std::sqrt(static_cast<double>(k->constant().value_or(1)));
  }
  return rule;
}

Tensor fill(const ir::Graph& graph, ir::TensorId tensor, int rank, uint64_t seed,
            const Extents& shape) {
  Tensor t(graph[tensor].dtype, shape);
  const FillRule rule = fill_rule(graph, tensor);
  const uint64_t key = key_of(seed, graph[tensor].name, rank);
  if (rule.kind == FillRule::Kind::Normal) fill_normal(t, key, static_cast<float>(rule.scale));
  if (rule.kind == FillRule::Kind::Integers)
    for (int64_t i = 0; i < t.elements(); ++i) {
      const uint64_t r = random_bits(key, static_cast<uint64_t>(i)) >> 32;
      t.set(i, static_cast<double>(
                   rule.lo +
                   static_cast<int64_t>((r * static_cast<uint64_t>(rule.hi - rule.lo)) >> 32)));
    }
  return t;
}

}  // namespace maco::reference
