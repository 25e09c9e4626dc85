// The device code's numbers, as a host compiler sees them, against the reference's.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wunused-parameter"
// clang-format off
#include "runtime/host/abi.h"
#include "runtime/cpu/intrinsics/intrinsics.h"
#include "runtime/device/numbers.cuh"
// clang-format on
#pragma GCC diagnostic pop

#include "runtime/reference/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/cpu/executor.h"
#include "tests/catch.h"

namespace maco {
namespace {

using ir::DType;

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class T>
void check_every_code(DType type, u32 codes) {
  for (u32 code = 0; code < codes; ++code) {
    T x;
    std::memcpy(&x, &code, sizeof x);
    const double expected = reference::decode(type, reinterpret_cast<const std::byte*>(&x));
    const float got = to_acc(x);
    if (!same(got, expected)) {
      CAPTURE(code);
      CHECK(double{got} == expected);
    }
    // What is read is stored again as it was.
    const T again = from_acc<T>(got);
    if (!std::isnan(got) && !std::isinf(got) && again.bits != x.bits) {
      CAPTURE(code);
      CHECK(again.bits == x.bits);
    }
  }
}

std::vector<float> samples() {
  std::vector<float> out = {0.0f,
                            -0.0f,
                            1.0f,
                            0.5f,
                            448.0f,
                            464.0f,
                            464.1f,
                            480.0f,
                            57344.0f,
                            61440.0f,
                            65504.0f,
                            65519.9f,
                            65520.0f,
                            1e-45f,
                            1e-40f,
                            3e38f,
                            1e30f,
                            0x1p-24f,
                            0x1p-25f,
                            0x1.8p-25f,
                            0x1p-10f,
                            0x1p-9f,
                            0x1p-17f,
                            0x1.000001p-17f,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  runtime::Random random(4);
  for (int i = 0; i < 200000; ++i)
    out.push_back(std::bit_cast<float>(static_cast<u32>(random.next())));
  // Around the formats' exponents, with short mantissas: ties.
  for (int i = 0; i < 200000; ++i) {
    const auto draw = static_cast<u32>(random.next());
    out.push_back(std::bit_cast<float>((90 + draw % 64) << 23 | (draw & 0x3fu) << 17 |
                                       (draw & 0x80000000u) | ((draw >> 10) % 3 == 0 ? 1 : 0)));
  }
  const size_t n = out.size();
  for (size_t i = 0; i < n; ++i) out.push_back(-out[i]);
  return out;
}

template <class T>
void check_rounding(DType type) {
  for (const float x : samples()) {
    T expected{};
    reference::encode(type, double{x}, reinterpret_cast<std::byte*>(&expected));
    const T got = from_acc<T>(x);
    if (!same(static_cast<double>(to_acc(got)), static_cast<double>(to_acc(expected)))) {
      CAPTURE(x);
      CHECK(to_acc(got) == to_acc(expected));
    }
  }
}

template <class T>
void check_integers(DType type) {
  runtime::Random random(9);
  for (int i = 0; i < 200000; ++i) {
    const auto draw = random.next();
    const i32 x =
        static_cast<i32>(static_cast<u32>(draw) >> (draw >> 32) % 32) * ((draw >> 40) % 2 ? 1 : -1);
    T expected{};
    reference::encode(type, &x, 1, reinterpret_cast<std::byte*>(&expected));
    const T got = from_acc<T>(x);
    if (std::memcmp(&got, &expected, sizeof got) != 0) {
      CAPTURE(x);
      CHECK(to_acc(got) == to_acc(expected));
    }
  }
}

}  // namespace

TEST_CASE("every code of the small floats means what the reference says") {
  check_every_code<f16>(DType::F16, 65536);
  check_every_code<bf16>(DType::BF16, 65536);
  check_every_code<f8e4m3>(DType::F8E4M3, 256);
  check_every_code<f8e5m2>(DType::F8E5M2, 256);
}

TEST_CASE("storing rounds once, to nearest even, as the reference does") {
  check_rounding<f16>(DType::F16);
  check_rounding<bf16>(DType::BF16);
  check_rounding<f8e4m3>(DType::F8E4M3);
  check_rounding<f8e5m2>(DType::F8E5M2);
  check_rounding<i32>(DType::I32);
  check_rounding<u8>(DType::U8);
}

TEST_CASE("integers are stored as the reference does") {
  check_integers<float>(DType::F32);
  check_integers<f16>(DType::F16);
  check_integers<bf16>(DType::BF16);
  check_integers<f8e4m3>(DType::F8E4M3);
  check_integers<f8e5m2>(DType::F8E5M2);
  check_integers<i32>(DType::I32);
  check_integers<u8>(DType::U8);
}

TEST_CASE("element functions treat NaN as NumPy does and integers wrap") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {1.0f, -infinity, infinity}) {
    CHECK(std::isnan(fn::maximum(x, nan)));
    CHECK(std::isnan(fn::maximum(nan, x)));
    CHECK(std::isnan(fn::minimum(x, nan)));
    CHECK(std::isnan(fn::minimum(nan, x)));
  }
  CHECK(std::isnan(fn::relu(nan)));
  CHECK(fn::maximum(2.0f, -3.0f) == 2.0f);
  CHECK(fn::minimum(2.0f, -3.0f) == -3.0f);
  CHECK(fn::add(2147483647, 1) == -2147483647 - 1);
  CHECK(fn::mul(65536, 65536) == 0);
  CHECK(fn::sub(-2147483647 - 1, 1) == 2147483647);
  CHECK(fn::neg(-2147483647 - 1) == -2147483647 - 1);
  CHECK(fn::abs(-2147483647 - 1) == -2147483647 - 1);
  CHECK((fn::abs(-7) == 7 && fn::neg(7) == -7));
}

TEST_CASE("comparisons, bounds and choices are IEEE's") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float x : {nan, 1.0f}) {
    CHECK((fn::eq(x, nan) == 0 && fn::ne(x, nan) == 1));
    CHECK(
        (fn::lt(x, nan) == 0 && fn::le(x, nan) == 0 && fn::gt(x, nan) == 0 && fn::ge(nan, x) == 0));
  }
  CHECK((fn::eq(0.0f, -0.0f) == 1 && fn::lt(-0.0f, 0.0f) == 0 && fn::le(0.0f, -0.0f) == 1));
  CHECK((fn::lt(16777216, 16777217) == 1 && fn::ge(3, 3) == 1 && fn::gt(3, 3) == 0));
  CHECK(std::isnan(fn::clamp(nan, 0.0f, 1.0f)));
  CHECK((fn::clamp(-1.0f, 0.0f, 1.0f) == 0.0f && fn::clamp(7.0f, 3.0f, 1.0f) == 1.0f));
  CHECK((fn::where(255, 1.0f, nan) == 1.0f && fn::where(0, nan, 2.0f) == 2.0f));
  CHECK((std::signbit(fn::neg(0.0f)) && !std::signbit(fn::abs(-0.0f))));
  CHECK((fn::pow(nan, 0.0f) == 1.0f && fn::pow(1.0f, nan) == 1.0f));
  CHECK((std::isnan(fn::pow(-2.0f, 0.5f)) && fn::pow(-2.0f, 3.0f) == -8.0f));
  CHECK((fn::power<-1>(-0.0f) == -std::numeric_limits<float>::infinity() &&
         fn::power<3>(-2.0f) == -8.0f && fn::power<4>(3.0f) == 81.0f));
}

// All exponents and both signs with mantissas of all kinds, and a close look at where results are
// neither 0, 1 nor x.
std::vector<float> sweep() {
  std::vector<float> out;
  runtime::Random random(11);
  for (u32 exponent = 0; exponent < 256; ++exponent)
    for (u32 i = 0; i < 200; ++i) {
      const u32 mantissa = i == 0   ? 0u
                           : i == 1 ? 0x7fffffu
                           : i == 2 ? 1u
                                    : static_cast<u32>(random.next()) & 0x7fffffu;
      out.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
      out.push_back(-out.back());
    }
  for (float x = -110.0f; x < 110.0f; x += 0.001220703125f) out.push_back(x + 1e-4f);
  return out;
}

// f is within `relative` of its meaning wherever that is a normal number of f32, and NaN and
// infinite where it is.
template <class F, class G>
void check_function(const char* name, double relative, F f, G meaning) {
  double worst = 0;
  float at = 0;
  for (const float x : sweep()) {
    const double expected = meaning(double{x}), got = double{f(x)};
    const auto rounded = static_cast<float>(expected);
    bool right = std::isnan(got) == std::isnan(expected);
    if (right && !std::isnan(expected)) {
      if (std::isinf(rounded) || std::isinf(got)) {
        right = got == double{rounded};
      } else if (std::fabs(rounded) >= std::numeric_limits<float>::min()) {
        const double error = std::fabs(got / expected - 1);
        if (error > worst) worst = error, at = x;
      } else {
        right = std::fabs(got - expected) <=
                    double{std::numeric_limits<float>::min()} * std::max(1e-6, relative) &&
                std::signbit(got) == std::signbit(expected);
      }
    }
    if (!right) {
      INFO(name << " of " << x);
      CHECK(got == expected);
    }
  }
  for (const float zero : {0.0f, -0.0f}) {
    INFO(name << " of " << zero);
    CHECK(std::signbit(f(zero)) == std::signbit(meaning(double{zero})));
  }
  INFO(name << ": " << worst << " at " << at);
  CHECK(worst < relative);
}

TEST_CASE("element functions keep their digits over the whole range of f32") {
  const double pi = std::acos(-1.0);
  check_function(
      "exp", 3e-7, [](float x) { return fn::exp(x); }, [](double x) { return std::exp(x); });
  check_function(
      "tanh", 3e-7, [](float x) { return fn::tanh(x); }, [](double x) { return std::tanh(x); });
  check_function(
      "log", 3e-7, [](float x) { return fn::log(x); }, [](double x) { return std::log(x); });
  check_function(
      "sqrt", 6e-8, [](float x) { return fn::sqrt(x); }, [](double x) { return std::sqrt(x); });
  check_function(
      "rsqrt", 1.8e-7, [](float x) { return fn::rsqrt(x); },
      [](double x) { return 1 / std::sqrt(x); });
  check_function(
      "sin", 3e-7, [](float x) { return fn::sin(x); }, [](double x) { return std::sin(x); });
  check_function(
      "cos", 3e-7, [](float x) { return fn::cos(x); }, [](double x) { return std::cos(x); });
  check_function(
      "erf", 3e-7, [](float x) { return fn::erf(x); }, [](double x) { return std::erf(x); });
  check_function(
      "pow", 5e-7, [](float x) { return fn::pow(x, 1.7f); },
      [](double x) { return std::pow(x, double{1.7f}); });
  check_function(
      "inverse", 6e-8, [](float x) { return fn::power<-1>(x); }, [](double x) { return 1 / x; });
  check_function(
      "sigmoid", 4e-7, [](float x) { return fn::sigmoid(x); },
      [](double x) { return 1 / (1 + std::exp(-x)); });
  check_function(
      "silu", 5e-7, [](float x) { return fn::silu(x); },
      [](double x) { return x / (1 + std::exp(-x)); });
  check_function(
      "near_silu", 7.6e-6, [](float x) { return fn::near_silu(x); },
      [](double x) { return x / (1 + std::exp(-x)); });
  check_function(
      "gelu", 7e-7, [](float x) { return fn::gelu(x); },
      [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); });
  check_function(
      "near_gelu", 1.5e-5, [](float x) { return fn::near_gelu(x); },
      [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); });
  check_function(
      "near_gelu_tanh", 3e-5, [](float x) { return fn::near_gelu_tanh(x); },
      [&](double x) {
        return x / (1 + std::exp(-2 * std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
      });
  check_function(
      "gelu_tanh", 5e-7, [](float x) { return fn::gelu_tanh(x); },
      [&](double x) {
        return x / (1 + std::exp(-2 * std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
      });
}

}  // namespace maco
