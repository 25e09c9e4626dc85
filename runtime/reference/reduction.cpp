// Ops that make one element from a row: sum, mean, max, argmax. max and argmax treat NaN as NumPy
// does: it is the largest.
#include <algorithm>
#include <cmath>

#include "runtime/reference/ops.h"

namespace maco::reference {

namespace {

int64_t index_of_max(const double* x, int64_t n) {
  int64_t best = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (std::isnan(x[j])) return j;
    if (x[j] > x[best]) best = j;
  }
  return best;
}

void argmax(Call& call) {
  const Tensor& x = *call.in[0];
  const std::vector<double> v = x.doubles();
  std::vector<int32_t> out;
  for (int64_t i = 0; i < x.rows(); ++i)
    out.push_back(static_cast<int32_t>(index_of_max(v.data() + i * x.cols(), x.cols())));
  call.out[0].store(out);
}

void reduce(Call& call) {
  const Tensor& x = *call.in[0];
  const std::string& kind = call.op().kind;
  const int64_t n = x.cols();
  if (!ir::is_float(x.dtype) && kind == "sum") {
    const std::vector<int32_t> v = x.integers();
    std::vector<int32_t> out;
    for (int64_t i = 0; i < x.rows(); ++i) {
      uint32_t sum = 0;
      for (int64_t j = 0; j < n; ++j)
        sum += static_cast<uint32_t>(v[static_cast<size_t>(i * n + j)]);
      out.push_back(static_cast<int32_t>(sum));
    }
    return call.out[0].store(out);
  }
  const std::vector<double> v = x.doubles();
  std::vector<double> out;
  for (int64_t i = 0; i < x.rows(); ++i) {
    const double* row = v.data() + i * n;
    if (kind == "max") {
      out.push_back(row[index_of_max(row, n)]);
    } else {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += row[j];
      out.push_back(kind == "mean" ? sum / static_cast<double>(n) : sum);
    }
  }
  call.out[0].store(out);
}

}  // namespace

std::vector<OpEntry> reduction_entries() {
  return {{"argmax", argmax}, {"sum", reduce}, {"mean", reduce}, {"max", reduce}};
}

}  // namespace maco::reference
