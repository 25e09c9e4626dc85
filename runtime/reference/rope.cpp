// rope: turns pairs of elements of each head by position x frequency. Pairs are (j, j + D/2), or
// (2j, 2j + 1) with `interleaved`; frequencies fall off as theta^(-2j/D), stretched by `scaling` as
// in Llama 3.1.
#include <cmath>

#include "runtime/reference/ops.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

namespace {

std::vector<double> frequencies(Call& call, int64_t d) {
  const double theta = call.number("theta", 10000);
  std::vector<double> f;
  for (int64_t j = 0; j < d / 2; ++j) {
    double v = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(d));
    if (call.has("scaling")) {
      const double factor = call.field("scaling", "factor", 1),
                   low = call.field("scaling", "low_freq_factor", 1),
                   high = call.field("scaling", "high_freq_factor", 4),
                   original = call.field("scaling", "original_max_position", 8192);
      const double turns = original * v / (2 * M_PI);  // over the original context
      if (turns < low) {
        v /= factor;
      } else if (turns <= high) {
        const double smooth = (turns - low) / (high - low);
        v *= (1 - smooth) / factor + smooth;
      }
    }
    f.push_back(v);
  }
  return f;
}

void rope(Call& call) {
  const Tensor& x = *call.in[0];
  const int64_t d = call.integer("head_dim", x.cols()), n = x.cols(),
                first_position = call.integer("position", 0);
  const std::vector<int32_t> positions =
      call.in.size() > 1 ? call.in[1]->integers() : std::vector<int32_t>();
  const bool interleaved = call.flag("interleaved", false);
  const std::vector<double> f = frequencies(call, d);
  if (!call.status()) return;

  std::vector<double> v = x.doubles();
  parallel_for(x.rows(), 30 * static_cast<double>(n), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto position = static_cast<double>(
          positions.empty() ? first_position + i : positions[static_cast<size_t>(i)]);
      for (int64_t head = 0; head < n; head += d)
        for (int64_t j = 0; j < d / 2; ++j) {
          double& a = v[static_cast<size_t>(i * n + head + (interleaved ? 2 * j : j))];
          double& b = v[static_cast<size_t>(i * n + head + (interleaved ? 2 * j + 1 : j + d / 2))];
          const double angle = position * f[static_cast<size_t>(j)];
          const double c = std::cos(angle), s = std::sin(angle), a0 = a, b0 = b;
          a = a0 * c - b0 * s;
          b = b0 * c + a0 * s;
        }
    }
  });
  call.out[0].store(v);
}

}  // namespace

std::vector<OpEntry> rope_entries() { return {{"rope", rope}}; }

}  // namespace maco::reference
