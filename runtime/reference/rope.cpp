// rope: rotates pairs among the first R = rotary_dim elements of each head by position x frequency.
// Pairs are (j, j + R/2), or (2j, 2j + 1) with `interleaved`. Frequencies fall off as
// theta^(-2j/R), stretched by `scaling` as in Llama 3.1, or are an operand. With tables, an
// element's cosine and sine are read at the row of its position. Both are multiplied by
// attention_factor.
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/reference/ops.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

namespace {

// The frequencies of the pairs of `d` elements.
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
      const double turns = original * v / (2 * M_PI);  // rotations over the original context
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

// Cosine and sine of the first (0) or second (1) element of pair j at a position.
using Angle = std::function<std::pair<double, double>(int64_t position, int64_t j, int element)>;

Angle worked_out(const std::vector<double>& f) {
  return [&f](int64_t position, int64_t j, int) {
    const double angle = static_cast<double>(position) * f[static_cast<size_t>(j)];
    return std::pair(std::cos(angle), std::sin(angle));
  };
}

Angle looked_up(const Tensor& cosines, const std::vector<double>& c, const std::vector<double>& s,
                int64_t d, bool interleaved) {
  const int64_t columns = cosines.cols();
  return [&c, &s, columns, d, interleaved](int64_t position, int64_t j, int element) {
    int64_t column = j;
    if (columns == d) column = interleaved ? 2 * j + element : j + element * d / 2;
    const auto at = static_cast<size_t>(position * columns + column);
    return std::pair(c[at], s[at]);
  };
}

void rope(Call& call) {
  const Tensor& x = *call.in[0];
  const int64_t d = call.integer("head_dim", x.cols()), n = x.cols(),
                first_position = call.integer("position", 0);
  const int64_t turned = call.integer("rotary_dim", d);
  const double factor = call.number("attention_factor", 1);
  const size_t inputs = call.in.size(), others = inputs - (call.has("position") ? 1 : 2);
  const bool tables = others == 2;
  const std::vector<int32_t> positions =
      call.has("position") ? std::vector<int32_t>() : call.in[1]->integers();
  const bool interleaved = call.flag("interleaved", false);
  const std::vector<double> f =
      others == 1 ? call.in[inputs - 1]->doubles() : frequencies(call, turned);
  if (!call.status()) return;

  std::vector<double> cosines, sines;
  if (tables) {
    cosines = call.in[inputs - 2]->doubles();
    sines = call.in[inputs - 1]->doubles();
    const int64_t rows = call.in[inputs - 2]->rows();
    for (size_t i = 0; i < positions.size(); ++i)
      if (positions[i] < 0 || positions[i] >= rows)
        return call.bad_index(positions[i], rows, static_cast<int64_t>(i));
  }
  const Angle angle =
      tables ? looked_up(*call.in[inputs - 2], cosines, sines, turned, interleaved) : worked_out(f);

  std::vector<double> v = x.doubles();
  parallel_for(x.rows(), 30 * static_cast<double>(n), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t position =
          positions.empty() ? first_position + i : positions[static_cast<size_t>(i)];
      for (int64_t head = 0; head < n; head += d)
        for (int64_t j = 0; j < turned / 2; ++j) {
          const int64_t one = head + (interleaved ? 2 * j : j),
                        other = interleaved ? one + 1 : one + turned / 2;
          double &a = v[static_cast<size_t>(i * n + one)],
                 &b = v[static_cast<size_t>(i * n + other)];
          const auto [c0, s0] = angle(position, j, 0);
          const auto [c1, s1] = angle(position, j, 1);
          const double a0 = a, b0 = b;
          a = factor * (a0 * c0 - b0 * s0);
          b = factor * (b0 * c1 + a0 * s1);
        }
    }
  });
  call.out[0].store(v);
}

}  // namespace

std::vector<OpEntry> rope_entries() { return {{"rope", rope}}; }

}  // namespace maco::reference
