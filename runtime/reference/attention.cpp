// attention over a cache or over keys of this launch, with grouped heads; kv_append, which fills
// the cache. A causal query before the first key (more queries than keys) gives zeros; with a
// window a query sees that many keys, the last being its own. Scores may be capped.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/reference/ops.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

namespace {

void attention(Call& call) {
  const Tensor &q = *call.in[0], &k = *call.in[1], &v = *call.in[2];
  const int64_t d = call.integer("head_dim", q.cols());
  const int64_t length = call.integer("length", k.rows());
  const double scale = call.number("scale", 1 / std::sqrt(static_cast<double>(d)));
  const bool causal = call.flag("causal", false);
  const int64_t window = call.integer("window", length);
  const double cap = call.number("softcap", 0);
  if (!call.status()) return;
  const int64_t rows = q.rows(), heads = q.cols() / d, kv_heads = k.cols() / d;
  if (length < 1 || length > k.rows())
    return call.fail(fmt::format("'length' is {}, and k has {} rows", length, k.rows()));

  const std::vector<double> qs = q.doubles(), ks = k.doubles(), vs = v.doubles();
  std::vector<double> out(qs.size());
  const double cost = static_cast<double>(length * d) * 2.0;
  parallel_for(rows * heads, cost, [&](int64_t first, int64_t last) {
    std::vector<double> p(static_cast<size_t>(length));
    for (int64_t item = first; item < last; ++item) {
      const int64_t i = item / heads, head = item % heads, kv = head / (heads / kv_heads);
      const int64_t seen = causal ? length - rows + i + 1 : length;
      const int64_t begin = std::max<int64_t>(seen - window, 0);
      const double* qi = qs.data() + i * q.cols() + head * d;
      double top = -INFINITY, sum = 0;
      for (int64_t s = begin; s < seen; ++s) {
        const double* ksd = ks.data() + s * k.cols() + kv * d;
        double dot = 0;
        for (int64_t j = 0; j < d; ++j) dot += qi[j] * ksd[j];
        const double score = cap > 0 ? cap * std::tanh(dot * scale / cap) : dot * scale;
        p[static_cast<size_t>(s)] = score;
        top = std::isnan(score) ? score : std::max(top, score);
      }
      for (int64_t s = begin; s < seen; ++s)
        sum += p[static_cast<size_t>(s)] = std::exp(p[static_cast<size_t>(s)] - top);
      double* o = out.data() + i * q.cols() + head * d;
      for (int64_t s = begin; s < seen; ++s) {
        const double weight = p[static_cast<size_t>(s)] / sum;
        const double* vsd = vs.data() + s * v.cols() + kv * d;
        for (int64_t j = 0; j < d; ++j) o[j] += weight * vsd[j];
      }
    }
  });
  call.out[0].store(out);
}

void kv_append(Call& call) {
  Tensor& cache = call.out[0];
  const Tensor& x = *call.in[1];
  const int64_t at = call.integer("at", 0);
  if (!call.status()) return;
  if (at < 0 || at + x.rows() > cache.rows())
    return call.fail(
        fmt::format("rows {} to {} are outside the cache's {}", at, at + x.rows(), cache.rows()));
  Tensor rows(cache.dtype, x.shape);
  if (x.dtype == cache.dtype)
    rows.bytes = x.bytes;
  else
    rows.store(x.doubles());
  std::memcpy(cache.element(at * cache.cols()), rows.bytes.data(), rows.bytes.size());
}

}  // namespace

std::vector<OpEntry> attention_entries() {
  return {{"attention", attention}, {"kv_append", kv_append, nullptr, true, Moves::AllInputs}};
}

}  // namespace maco::reference
