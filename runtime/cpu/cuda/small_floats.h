// small_floats.h: numbers to the bits of floats smaller than f32, and back. Included by halves.h.

#pragma once

namespace maco_words {

enum class Rounding { kNearest, kZero, kUp, kDown };

/// Rounds the magnitude of the float with the bits `x` (not NaN) to a format with `mantissa` bits
/// and normal numbers from 2^min_exponent on. On overflow, also for infinity, the result is larger
/// than any number of the format.
inline uint32_t round_magnitude(uint32_t x, int mantissa, int min_exponent,
                                Rounding rounding = Rounding::kNearest) {
  const uint32_t a = x & 0x7fffffffu;
  const int field = static_cast<int>(a >> 23);
  const uint32_t significand = (a & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
  const int exponent = (field > 0 ? field : 1) - 127;
  const int below = exponent < min_exponent ? min_exponent - exponent : 0;
  const int shift = 23 - mantissa + below < 25 ? 23 - mantissa + below : 25;
  uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1);
  const bool negative = (x >> 31) != 0;
  const bool away =
      rounding == Rounding::kNearest ? rest > half || (rest == half && (kept & 1u) != 0)
      : rounding == Rounding::kZero  ? false
                                     : rest != 0 && negative == (rounding == Rounding::kDown);
  if (away) ++kept;
  return below > 0 ? kept : (static_cast<uint32_t>(exponent - min_exponent) << mantissa) + kept;
}

/// Bits of a 16-bit float with infinities from `infinity` on; NaN is 0x7fff.
inline uint16_t round_16(float value, int mantissa, int min_exponent, uint32_t infinity,
                         Rounding rounding) {
  const uint32_t x = bits_as<uint32_t>(value);
  const uint32_t sign = (x >> 16) & 0x8000u;
  if ((x & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  if ((x & 0x7fffffffu) == 0x7f800000u) return static_cast<uint16_t>(sign | infinity);
  uint32_t code = round_magnitude(x, mantissa, min_exponent, rounding);
  if (code >= infinity) {
    const bool to_infinity =
        rounding == Rounding::kNearest ||
        (rounding != Rounding::kZero && (sign != 0) == (rounding == Rounding::kDown));
    code = to_infinity ? infinity : infinity - 1;
  }
  return static_cast<uint16_t>(sign | code);
}

inline uint16_t float_to_half_bits(float value, Rounding rounding = Rounding::kNearest) {
  return round_16(value, 10, -14, 0x7c00, rounding);
}

inline uint16_t float_to_bfloat16_bits(float value, Rounding rounding = Rounding::kNearest) {
  if (rounding != Rounding::kNearest || value != value) {
    return round_16(value, 7, -126, 0x7f80, rounding);
  }
  const uint32_t x = bits_as<uint32_t>(value);
  return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}

/// Exact; the NaN is 0x7fffffff.
inline float half_bits_to_float(uint16_t bits) {
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  if (magnitude > 0x0f800000u) return bits_as<float>(0x7fffffffu);
  if (magnitude == 0x0f800000u) return bits_as<float>(sign | 0x7f800000u);
  const float scaled = bits_as<float>(magnitude) * 0x1p112f;
  return bits_as<float>(sign | bits_as<uint32_t>(scaled));
}

inline float bfloat16_bits_to_float(uint16_t bits) {
  return bits_as<float>(static_cast<uint32_t>(bits) << 16);
}

/// A number as f32 for a second rounding: rounded towards zero, with the last bit set if that isn't
/// exact. So rounding twice gives the result of rounding once, in every direction.
inline float sticky_float(double value) {
  float near = static_cast<float>(value);
  if (static_cast<double>(near) == value || value != value) return near;
  uint32_t bits = bits_as<uint32_t>(near);
  if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
  return bits_as<float>(bits | 1u);
}
inline float sticky_float(unsigned long long value) {
  if (value >> 53 != 0) value = (value & ~0x7ffull) | ((value & 0x7ffull) != 0 ? 0x800u : 0u);
  return sticky_float(static_cast<double>(value));
}
inline float sticky_float(long long value) {
  const unsigned long long bits = static_cast<unsigned long long>(value);
  return value < 0 ? -sticky_float(0 - bits) : sticky_float(bits);
}

/// a * b + c as f32 for a second rounding; the products of numbers with up to 26 bits are exact.
inline float sticky_fma(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = c;
  double sum = product + addend;
  if (std::isfinite(sum)) {
    // The exact error of the addition (Knuth); its sign says on which side the true sum lies.
    const double part = sum - product;
    const double lost = (product - (sum - part)) + (addend - part);
    uint64_t bits = bits_as<uint64_t>(sum);
    if (lost != 0 && (bits & 1u) == 0) {
      bits = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
      sum = bits_as<double>(bits);
    }
  }
  return sticky_float(sum);
}

/// Converts as PTX does: saturates; NaN becomes 0, or only the highest bit for 8-byte results.
template <class Integer, class Float>
inline Integer to_integer(Float value) {
  using Limits = std::numeric_limits<Integer>;
  constexpr bool wide = sizeof(Integer) == 8 || sizeof(Float) == 8;
  if (value != value) {
    return wide ? static_cast<Integer>(1ull << (8 * sizeof(Integer) - 1)) : Integer{0};
  }
  // max() + 1 is a power of two, so it is exact.
  const Float end = static_cast<Float>(Limits::max() / 2 + 1) * 2;
  if (value >= end) return Limits::max();
  if (value <= (std::is_signed<Integer>::value ? -end : Float{0})) return Limits::min();
  return static_cast<Integer>(value);
}

template <class Integer, class Float>
inline Integer round_to_integer(Float value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest: return to_integer<Integer>(std::nearbyint(value));
    case Rounding::kZero: return to_integer<Integer>(value);
    case Rounding::kUp: return to_integer<Integer>(std::ceil(value));
    case Rounding::kDown: return to_integer<Integer>(std::floor(value));
  }
  return 0;
}

}  // namespace maco_words
