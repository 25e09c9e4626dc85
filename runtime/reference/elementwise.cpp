// Ops that look at one element at a time: binary ones and comparisons with broadcasting from the
// last axis or a `value`, unary ones, clamp, swiglu, geglu, where.
#include <algorithm>
#include <cmath>
#include <optional>

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
  if (function == "log") return std::log(x);
  if (function == "sqrt") return std::sqrt(x);
  if (function == "rsqrt") return 1 / std::sqrt(x);
  if (function == "sin") return std::sin(x);
  if (function == "cos") return std::cos(x);
  if (function == "erf") return std::erf(x);
  if (function == "neg") return -x;
  if (function == "abs") return std::fabs(x);
  MACO_CHECK(false, std::string(function));
}

namespace {
constexpr std::string_view kComparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};
}  // namespace

bool is_comparison(std::string_view kind) {
  return std::find(std::begin(kComparisons), std::end(kComparisons), kind) !=
         std::end(kComparisons);
}

std::vector<double> compared_number(const ir::Op& op) {
  const ir::AttrValue& value = op.attrs.at("value").value;
  const auto* number = std::get_if<double>(&value);
  const double v =
      number ? *number : static_cast<double>(std::get<ir::Expr>(value).constant().value_or(0));
  return {double{static_cast<float>(v)}};
}

namespace {

double binary(std::string_view kind, double a, double b) {
  if (kind == "add") return a + b;
  if (kind == "sub") return a - b;
  if (kind == "mul") return a * b;
  if (kind == "div") return a / b;
  if (kind == "pow") return std::pow(a, b);
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

template <class T>
bool holds(std::string_view kind, T a, T b) {
  if (kind == "eq") return a == b;
  if (kind == "ne") return a != b;
  if (kind == "lt") return a < b;
  if (kind == "le") return a <= b;
  if (kind == "gt") return a > b;
  return a >= b;
}

template <class T>
std::vector<int32_t> compared(std::string_view kind, const std::vector<T>& a,
                              const std::vector<T>& b) {
  std::vector<int32_t> result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = holds(kind, a[i], b[i % b.size()]) ? 1 : 0;
  return result;
}

void eval_comparison(Call& call) {
  const bool floats = ir::is_float(call.in[0]->dtype), two = call.in.size() > 1;
  const std::string& kind = call.op().kind;
  if (floats)
    call.out[0].store(
        compared(kind, call.in[0]->doubles(),
                 two ? call.in[1]->doubles()
                     : std::vector<double>{double{static_cast<float>(call.number("value", 0))}}));
  else
    call.out[0].store(
        compared(kind, call.in[0]->integers(),
                 two ? call.in[1]->integers()
                     : std::vector<int32_t>{static_cast<int32_t>(call.integer("value", 0))}));
}

template <class T>
std::vector<T> clamped(std::vector<T> x, std::optional<T> lowest, std::optional<T> highest) {
  // A NaN is neither below nor above.
  for (T& e : x) {
    if (lowest && e < *lowest) e = *lowest;
    if (highest && e > *highest) e = *highest;
  }
  return x;
}

void eval_clamp(Call& call) {
  const auto bound = [&](const char* name) {
    return call.op().attrs.count(name)
               ? std::optional<double>(static_cast<float>(call.number(name, 0)))
               : std::nullopt;
  };
  const auto whole = [&](const char* name) {
    return call.op().attrs.count(name)
               ? std::optional<int32_t>(static_cast<int32_t>(call.integer(name, 0)))
               : std::nullopt;
  };
  if (ir::is_float(call.in[0]->dtype))
    call.out[0].store(clamped(call.in[0]->doubles(), bound("min"), bound("max")));
  else
    call.out[0].store(clamped(call.in[0]->integers(), whole("min"), whole("max")));
}

template <class T>
std::vector<T> chosen(const std::vector<int32_t>& condition, std::vector<T> a,
                      const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (condition[i] == 0) a[i] = b[i % b.size()];
  return a;
}

void eval_where(Call& call) {
  const std::vector<int32_t> condition = call.in[0]->integers();
  const bool two = call.in.size() > 2;
  if (ir::is_float(call.in[1]->dtype))
    call.out[0].store(
        chosen(condition, call.in[1]->doubles(),
               two ? call.in[2]->doubles()
                   : std::vector<double>{double{static_cast<float>(call.number("value", 0))}}));
  else
    call.out[0].store(
        chosen(condition, call.in[1]->integers(),
               two ? call.in[2]->integers()
                   : std::vector<int32_t>{static_cast<int32_t>(call.integer("value", 0))}));
}

int32_t integer_unary(std::string_view kind, int32_t x) {
  if (kind == "relu") return std::max(x, 0);
  if (kind == "abs" && x >= 0) return x;
  return static_cast<int32_t>(0u - static_cast<uint32_t>(x));
}

void eval_unary(Call& call) {
  const Tensor& x = *call.in[0];
  std::string function = call.op().kind;
  if (!ir::is_float(x.dtype)) {
    std::vector<int32_t> v = x.integers();
    for (int32_t& e : v) e = integer_unary(function, e);
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

void gated(Call& call) {
  std::string function = call.op().kind == "swiglu" ? "silu" : "gelu";
  if (call.word("approximate", "none") == "tanh") function += "_tanh";
  std::vector<double> gate = call.in[0]->doubles();
  const std::vector<double> up = call.in[1]->doubles();
  parallel_for(static_cast<int64_t>(gate.size()), 20, [&](int64_t first, int64_t last) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i)
      gate[i] = apply_unary(function, gate[i]) * up[i];
  });
  call.out[0].store(gate);
}

}  // namespace

std::vector<OpEntry> elementwise_entries() {
  std::vector<OpEntry> out;
  for (std::string_view kind : {"add", "sub", "mul", "div", "pow", "maximum", "minimum"})
    out.push_back({std::string(kind), eval_binary});
  for (std::string_view kind : kComparisons) out.push_back({std::string(kind), eval_comparison});
  for (std::string_view kind : {"relu", "silu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt",
                                "rsqrt", "sin", "cos", "erf", "neg", "abs"})
    out.push_back({std::string(kind), eval_unary});
  out.push_back({"clamp", eval_clamp});
  out.push_back({"where", eval_where});
  for (std::string_view kind : {"swiglu", "geglu"}) out.push_back({std::string(kind), gated});
  return out;
}

}  // namespace maco::reference
