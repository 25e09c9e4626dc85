#include "runtime/reference/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace maco::reference {

using ir::DType;

namespace {

// A binary floating-point format of at most 16 bits. `finite`: no infinities; the all-ones code
// alone is NaN (e4m3).
struct Format {
  int exponent_bits, mantissa_bits;
  bool finite, saturate;
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  constexpr uint32_t quiet_nan() const {
    return finite ? (1u << (exponent_bits + mantissa_bits)) - 1
                  : infinity() | 1u << (mantissa_bits - 1);
  }
  constexpr uint32_t largest() const { return finite ? quiet_nan() - 1 : infinity() - 1; }
};
constexpr Format kF16{5, 10, false, false};
constexpr Format kBF16{8, 7, false, false};
constexpr Format kE4M3{4, 3, true, true};
constexpr Format kE5M2{5, 2, false, true};

double to_double(const Format& f, uint32_t bits) {
  const uint32_t sign = bits >> (f.exponent_bits + f.mantissa_bits);
  const uint32_t magnitude = bits & ((1u << (f.exponent_bits + f.mantissa_bits)) - 1);
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const auto mantissa = static_cast<double>(magnitude & ((1u << f.mantissa_bits) - 1));
  double v;
  if (f.finite ? magnitude == f.quiet_nan() : magnitude > f.infinity()) {
    v = std::numeric_limits<double>::quiet_NaN();
  } else if (!f.finite && magnitude == f.infinity()) {
    v = std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    v = std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  } else {
    v = std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
  }
  return sign ? -v : v;
}

uint32_t from_double(const Format& f, double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint32_t>(bits >> 63) << (f.exponent_bits + f.mantissa_bits);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  constexpr uint64_t kInfinity = uint64_t{0x7ff} << 52;
  if (magnitude > kInfinity) return sign | f.quiet_nan();
  const uint32_t overflow = f.saturate ? f.largest() : f.infinity();
  if (magnitude == kInfinity) return sign | overflow;
  // The significand as an integer, shifted right so that its unit is the target's last place, with
  // the rest deciding the rounding.
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  const int least = 1 - f.bias();
  // Far below half of the smallest number; this includes doubles' subnormals.
  if (exponent < least - f.mantissa_bits - 2) return sign;
  const uint64_t significand = (magnitude & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int shift = 52 - f.mantissa_bits + (exponent < least ? least - exponent : 0);
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  uint64_t q = significand >> shift;
  if (rest > half || (rest == half && (q & 1))) ++q;
  // A carry out of the mantissa correctly runs into the exponent. For subnormals q is the code
  // itself.
  if (exponent >= least) q += static_cast<uint64_t>(exponent - least) << f.mantissa_bits;
  if (q > f.largest()) return sign | overflow;
  return sign | static_cast<uint32_t>(q);
}

// All values of an 8-bit format, by code.
struct Table8 {
  double value[256];
  explicit Table8(const Format& f) {
    for (uint32_t i = 0; i < 256; ++i) value[i] = to_double(f, i);
  }
};
const Table8& table(DType type) {
  static const Table8 e4m3(kE4M3), e5m2(kE5M2);
  return type == DType::F8E4M3 ? e4m3 : e5m2;
}

// All values of f16: weights come by the hundred million.
const std::vector<float>& f16_values() {
  static const std::vector<float> values = [] {
    std::vector<float> v(65536);
    for (uint32_t i = 0; i < 65536; ++i) v[i] = static_cast<float>(to_double(kF16, i));
    return v;
  }();
  return values;
}

template <class T>
T get(const std::byte* from, int64_t i) {
  T v;
  std::memcpy(&v, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <class T>
void put(std::byte* to, int64_t i, T v) {
  std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

template <class T>
T to_integer(double v) {
  if (std::isnan(v)) return 0;
  constexpr auto lo = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto hi = static_cast<double>(std::numeric_limits<T>::max());
  if (v <= lo) return std::numeric_limits<T>::min();
  if (v >= hi) return std::numeric_limits<T>::max();
  return static_cast<T>(v);
}

float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t float_to_bf16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 31) << 15 | kBF16.quiet_nan());
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class Out>
void decode_all(DType type, const std::byte* from, int64_t n, Out* to) {
  switch (type) {
    case DType::F32:
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(get<float>(from, i));
      break;
    case DType::F16: {
      const std::vector<float>& values = f16_values();
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(values[get<uint16_t>(from, i)]);
      break;
    }
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i)
        to[i] = static_cast<Out>(bf16_to_float(get<uint16_t>(from, i)));
      break;
    case DType::F8E4M3:
    case DType::F8E5M2: {
      const Table8& t = table(type);
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(t.value[get<uint8_t>(from, i)]);
      break;
    }
    case DType::I32:
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(get<int32_t>(from, i));
      break;
    case DType::U8:
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Out>(get<uint8_t>(from, i));
      break;
  }
}

template <class In>
void encode_all(DType type, const In* from, int64_t n, std::byte* to) {
  switch (type) {
    case DType::F32:
      for (int64_t i = 0; i < n; ++i) put(to, i, static_cast<float>(from[i]));
      break;
    case DType::F16:
      for (int64_t i = 0; i < n; ++i)
        put(to, i, static_cast<uint16_t>(from_double(kF16, static_cast<double>(from[i]))));
      break;
    case DType::BF16:
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<In, float>)
          put(to, i, float_to_bf16(from[i]));
        else
          put(to, i, static_cast<uint16_t>(from_double(kBF16, static_cast<double>(from[i]))));
      }
      break;
    case DType::F8E4M3:
      for (int64_t i = 0; i < n; ++i)
        put(to, i, static_cast<uint8_t>(from_double(kE4M3, static_cast<double>(from[i]))));
      break;
    case DType::F8E5M2:
      for (int64_t i = 0; i < n; ++i)
        put(to, i, static_cast<uint8_t>(from_double(kE5M2, static_cast<double>(from[i]))));
      break;
    case DType::I32:
      for (int64_t i = 0; i < n; ++i) put(to, i, to_integer<int32_t>(static_cast<double>(from[i])));
      break;
    case DType::U8:
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<In, int32_t>)
          put(to, i, static_cast<uint8_t>(from[i]));
        else
          put(to, i, to_integer<uint8_t>(static_cast<double>(from[i])));
      }
      break;
  }
}

}  // namespace

double decode(DType type, const std::byte* from) {
  double v = 0;
  decode_all(type, from, 1, &v);
  return v;
}
void encode(DType type, double value, std::byte* to) { encode_all(type, &value, 1, to); }

void decode(DType type, const std::byte* from, int64_t n, double* to) {
  decode_all(type, from, n, to);
}
void decode(DType type, const std::byte* from, int64_t n, float* to) {
  decode_all(type, from, n, to);
}
void decode(DType type, const std::byte* from, int64_t n, int32_t* to) {
  decode_all(type, from, n, to);
}
void encode(DType type, const double* from, int64_t n, std::byte* to) {
  encode_all(type, from, n, to);
}
void encode(DType type, const float* from, int64_t n, std::byte* to) {
  encode_all(type, from, n, to);
}
void encode(DType type, const int32_t* from, int64_t n, std::byte* to) {
  encode_all(type, from, n, to);
}

double round_to(DType type, double value) {
  std::byte bytes[4];
  encode(type, value, bytes);
  return decode(type, bytes);
}

}  // namespace maco::reference
