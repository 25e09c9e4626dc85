// matmul: a[M,K] times b[K,N] (or b[N,K] transposed), plus bias[N], then an activation, rounded
// once.
//
// Floats narrower than 32 bits have exact products in float32; they are summed in float32 over
// short stretches of K and the stretches in float64, which errs far less than any bound of --check
// and is what makes large graphs checkable at all. f32 operands take float64 throughout. Integers
// accumulate in i32 and wrap.
#include <algorithm>
#include <cstring>

#include "runtime/reference/numbers.h"
#include "runtime/reference/ops.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

namespace {

constexpr int kRows = 4, kCols = 16;  // of c, kept in registers
constexpr int64_t kStretch = 128;     // of K

// Wider vectors where the machine has them. No fused multiply-add, so that the bits are the same
// everywhere.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MACO_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define MACO_WIDE
#endif

// 32 bytes of T, at any address. Where a machine's vectors are shorter the compiler takes several.
template <class T>
struct Lanes {
  static constexpr int kCount = 32 / sizeof(T);
  typedef T Vector __attribute__((vector_size(32), aligned(sizeof(T)), may_alias));
};

// acc[r][c] = sum over k of a[r * lda + k] * b[k][c], for kRows rows.
template <class T>
[[gnu::always_inline]] inline void micro_body(const T* a, int64_t lda, const T* b, int64_t k_count,
                                              T* acc) {
  using Vector = typename Lanes<T>::Vector;
  // columns at a time: with 4 rows, 8 sums, within 16 registers
  constexpr int kStep = 2 * Lanes<T>::kCount;
  for (int c = 0; c < kCols; c += kStep) {
    Vector low[kRows] = {}, high[kRows] = {};
    for (int64_t k = 0; k < k_count; ++k) {
      const auto* y = reinterpret_cast<const Vector*>(b + k * kCols + c);
      const Vector y0 = y[0], y1 = y[1];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const T x = a[r * lda + k];
        low[r] += x * y0;
        high[r] += x * y1;
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      auto* to = reinterpret_cast<Vector*>(acc + r * kCols + c);
      to[0] = low[r];
      to[1] = high[r];
    }
  }
}
MACO_WIDE void micro_float(const float* a, int64_t lda, const float* b, int64_t k_count,
                           float* acc) {
  micro_body(a, lda, b, k_count, acc);
}
MACO_WIDE void micro_double(const double* a, int64_t lda, const double* b, int64_t k_count,
                            double* acc) {
  micro_body(a, lda, b, k_count, acc);
}
void micro(const float* a, int64_t lda, const float* b, int64_t k_count, float* acc) {
  micro_float(a, lda, b, k_count, acc);
}
void micro(const double* a, int64_t lda, const double* b, int64_t k_count, double* acc) {
  micro_double(a, lda, b, k_count, acc);
}

// Columns [n0, n0 + width) of rows [k0, k0 + depth) of the effective b[K,N], as panel[k][kCols]
// with zeros beyond `width`.
template <class T>
void pack(const Tensor& b, bool transposed, int64_t k0, int64_t depth, int64_t n0, int64_t width,
          T* panel, T* row) {
  const int64_t pitch = b.cols();
  if (transposed) {
    for (int64_t c = 0; c < kCols; ++c) {
      if (c < width) decode(b.dtype, b.element((n0 + c) * pitch + k0), depth, row);
      for (int64_t k = 0; k < depth; ++k) panel[k * kCols + c] = c < width ? row[k] : T(0);
    }
  } else {
    for (int64_t k = 0; k < depth; ++k) {
      decode(b.dtype, b.element((k0 + k) * pitch + n0), width, panel + k * kCols);
      std::fill(panel + k * kCols + width, panel + (k + 1) * kCols, T(0));
    }
  }
}

// c[M,N] = a b for floating-point operands. `a` is padded with zero rows to a multiple of kRows.
template <class T>
void multiply(const std::vector<T>& a, int64_t m, int64_t k_all, const Tensor& b, bool transposed,
              int64_t n, std::vector<double>& c) {
  const int64_t panels = (n + kCols - 1) / kCols;
  const double cost = static_cast<double>(kCols * k_all) * (1.0 + 0.15 * static_cast<double>(m));
  parallel_for(panels, cost, [&](int64_t first, int64_t last) {
    std::vector<T> panel(static_cast<size_t>(kStretch * kCols)), row(static_cast<size_t>(kStretch));
    for (int64_t p = first; p < last; ++p) {
      const int64_t n0 = p * kCols, width = std::min<int64_t>(kCols, n - n0);
      for (int64_t k0 = 0; k0 < k_all; k0 += kStretch) {
        const int64_t depth = std::min(kStretch, k_all - k0);
        pack(b, transposed, k0, depth, n0, width, panel.data(), row.data());
        for (int64_t m0 = 0; m0 < m; m0 += kRows) {
          T acc[kRows * kCols];
          micro(a.data() + m0 * k_all + k0, k_all, panel.data(), depth, acc);
          for (int64_t r = 0; r < std::min<int64_t>(kRows, m - m0); ++r)
            for (int64_t j = 0; j < width; ++j)
              c[static_cast<size_t>((m0 + r) * n + n0 + j)] +=
                  static_cast<double>(acc[r * kCols + j]);
        }
      }
    }
  });
}

template <class T>
std::vector<T> padded(const Tensor& a) {
  const int64_t rows = (a.rows() + kRows - 1) / kRows * kRows;
  std::vector<T> v(static_cast<size_t>(rows * a.cols()));
  decode(a.dtype, a.bytes.data(), a.elements(), v.data());
  return v;
}

void integer_matmul(Call& call, int64_t n, bool transposed) {
  const Tensor &a = *call.in[0], &b = *call.in[1];
  const std::vector<int32_t> x = a.integers(), y = b.integers();
  const std::vector<int32_t> bias =
      call.in.size() > 2 ? call.in[2]->integers() : std::vector<int32_t>();
  const int64_t m = a.rows(), k_all = a.cols();
  const bool relu = call.word("activation", "none") == "relu";
  std::vector<int32_t> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < k_all; ++k)
        sum +=
            static_cast<uint32_t>(x[static_cast<size_t>(i * k_all + k)]) *
            static_cast<uint32_t>(y[static_cast<size_t>(transposed ? j * k_all + k : k * n + j)]);
      if (!bias.empty()) sum += static_cast<uint32_t>(bias[static_cast<size_t>(j)]);
      const auto v = static_cast<int32_t>(sum);
      c[static_cast<size_t>(i * n + j)] = relu ? std::max(v, 0) : v;
    }
  call.out[0].store(c);
}

void matmul(Call& call) {
  const Tensor &a = *call.in[0], &b = *call.in[1];
  const bool transposed = call.flag("transpose_b", false);
  const int64_t m = a.rows(), k_all = a.cols(), n = b.axis(transposed ? 0 : 1);
  if (!ir::is_float(a.dtype) && !ir::is_float(b.dtype)) return integer_matmul(call, n, transposed);

  std::vector<double> c(static_cast<size_t>(m * n));
  if (ir::size_of(a.dtype) < 4 && ir::size_of(b.dtype) < 4)
    multiply(padded<float>(a), m, k_all, b, transposed, n, c);
  else
    multiply(padded<double>(a), m, k_all, b, transposed, n, c);

  const std::vector<double> bias =
      call.in.size() > 2 ? call.in[2]->doubles() : std::vector<double>();
  const std::string activation = call.word("activation", "none");
  for (size_t i = 0; i < c.size(); ++i) {
    if (!bias.empty()) c[i] += bias[i % static_cast<size_t>(n)];
    if (activation != "none") c[i] = apply_unary(activation, c[i]);
  }
  call.out[0].store(c);
}

}  // namespace

std::vector<OpEntry> matmul_entries() { return {{"matmul", matmul}}; }

}  // namespace maco::reference
