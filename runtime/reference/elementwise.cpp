// Ops that look at one element at a time: binary ones with broadcasting from the last axis or a
// `value`, unary ones, swiglu.
#include <algorithm>
#include <cmath>

#include "ir/check.h"
#include "runtime/reference/ops.h"
#include "runtime/reference/parallel.h"

namespace maco::reference {

double apply_unary(std::string_view function, double x) {
  if (function == "relu") return std::isnan(x) ? x : std::max(x, 0.0);
  if (function == "silu") return x / (1 + std::exp(-x));
  if (function == "gelu") return 0.5 * x * std::erfc(-x * M_SQRT1_2);
  // 0.5 x (1 + tanh(y / 2)), which loses its digits for negative x.
  if (function == "gelu_tanh")
    return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (function == "sigmoid") return 1 / (1 + std::exp(-x));
  if (function == "tanh") return std::tanh(x);
  if (function == "exp") return std::exp(x);
  MACO_CHECK(false, std::string(function));
}

namespace {

double binary(std::string_view kind, double a, double b) {
  if (kind == "add") return a + b;
  if (kind == "sub") return a - b;
  if (kind == "mul") return a * b;
  if (std::isnan(a) || std::isnan(b)) return a + b;
  return kind == "maximum" ? std::max(a, b) : std::min(a, b);
}

int32_t binary(std::string_view kind, int32_t a, int32_t b) {
  const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
  if (kind == "add") return static_cast<int32_t>(x + y);
  if (kind == "sub") return static_cast<int32_t>(x - y);
  if (kind == "mul") return static_cast<int32_t>(x * y);
  return kind == "maximum" ? std::max(a, b) : std::min(a, b);
}

template <class T>
void apply_binary(Call& call, std::vector<T> a, const std::vector<T>& b) {
  const std::string& kind = call.op().kind;
  const auto n = static_cast<int64_t>(a.size()), nb = static_cast<int64_t>(b.size());
  parallel_for(n, 10, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      a[static_cast<size_t>(i)] =
          binary(kind, a[static_cast<size_t>(i)], b[static_cast<size_t>(i % nb)]);
  });
  call.out[0].store(a);
}

void eval_binary(Call& call) {
  const bool integers = std::none_of(call.in.begin(), call.in.end(),
                                     [](const Tensor* t) { return ir::is_float(t->dtype); });
  if (integers) {
    apply_binary(call, call.in[0]->integers(),
                 call.in.size() > 1
                     ? call.in[1]->integers()
                     : std::vector<int32_t>{static_cast<int32_t>(call.integer("value", 0))});
  } else {
    // A value is an f32, as all arithmetic of floats is.
    const double value = static_cast<float>(call.number("value", 0));
    apply_binary(call, call.in[0]->doubles(),
                 call.in.size() > 1 ? call.in[1]->doubles() : std::vector<double>{value});
  }
}

void eval_unary(Call& call) {
  const Tensor& x = *call.in[0];
  std::string function = call.op().kind;
  if (function == "relu" && !ir::is_float(x.dtype)) {
    std::vector<int32_t> v = x.integers();
    for (int32_t& e : v) e = std::max(e, 0);
    return call.out[0].store(v);
  }
  if (function == "gelu" && call.word("approximate", "none") == "tanh") function = "gelu_tanh";
  std::vector<double> v = x.doubles();
  parallel_for(x.elements(), 20, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      v[static_cast<size_t>(i)] = apply_unary(function, v[static_cast<size_t>(i)]);
  });
  call.out[0].store(v);
}

void swiglu(Call& call) {
  std::vector<double> gate = call.in[0]->doubles();
  const std::vector<double> up = call.in[1]->doubles();
  parallel_for(static_cast<int64_t>(gate.size()), 20, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i)
      gate[i] = apply_unary("silu", gate[i]) * up[i];
  });
  call.out[0].store(gate);
}

}  // namespace

std::vector<OpEntry> elementwise_entries() {
  std::vector<OpEntry> out;
  for (std::string_view kind : {"add", "sub", "mul", "maximum", "minimum"})
    out.push_back({std::string(kind), eval_binary});
  for (std::string_view kind : {"relu", "silu", "gelu", "sigmoid", "tanh", "exp"})
    out.push_back({std::string(kind), eval_unary});
  out.push_back({"swiglu", swiglu});
  return out;
}

}  // namespace maco::reference
