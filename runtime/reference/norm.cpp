// Ops on whole rows that keep their shape: rmsnorm, layernorm, softmax.
#include <algorithm>
#include <cmath>

#include "runtime/reference/ops.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

namespace {

// Calls row(x, n), which rewrites one row in place, for each row.
template <class Row>
void each_row(Call& call, Row row) {
  std::vector<double> v = call.in[0]->doubles();
  const int64_t n = call.in[0]->cols();
  parallel_for(call.in[0]->rows(), 20 * static_cast<double>(n), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) row(v.data() + i * n, n);
  });
  call.out[0].store(v);
}

void rmsnorm(Call& call) {
  const std::vector<double> w = call.in[1]->doubles();
  const double eps = call.number("eps", 1e-6);
  each_row(call, [&](double* x, int64_t n) {
    double squares = 0;
    for (int64_t j = 0; j < n; ++j) squares += x[j] * x[j];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t j = 0; j < n; ++j) x[j] = x[j] * scale * w[static_cast<size_t>(j)];
  });
}

void layernorm(Call& call) {
  const std::vector<double> w = call.in[1]->doubles(), b = call.in[2]->doubles();
  const double eps = call.number("eps", 1e-5);
  each_row(call, [&](double* x, int64_t n) {
    // Counted from the first element: rows of equal values give zeros, however these are rounded.
    double mean = 0, squares = 0;
    const double first = x[0];
    for (int64_t j = 0; j < n; ++j) mean += x[j] -= first;
    mean /= static_cast<double>(n);
    for (int64_t j = 0; j < n; ++j) squares += (x[j] - mean) * (x[j] - mean);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t j = 0; j < n; ++j)
      x[j] = (x[j] - mean) * scale * w[static_cast<size_t>(j)] + b[static_cast<size_t>(j)];
  });
}

void softmax(Call& call) {
  each_row(call, [&](double* x, int64_t n) {
    double top = x[0], sum = 0;
    for (int64_t j = 1; j < n; ++j) top = std::isnan(x[j]) ? x[j] : std::max(top, x[j]);
    for (int64_t j = 0; j < n; ++j) sum += x[j] = std::exp(x[j] - top);
    for (int64_t j = 0; j < n; ++j) x[j] /= sum;
  });
}

}  // namespace

std::vector<OpEntry> norm_entries() {
  return {{"rmsnorm", rmsnorm}, {"layernorm", layernorm}, {"softmax", softmax}};
}

}  // namespace maco::reference
