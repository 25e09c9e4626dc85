// fp8.h: __nv_fp8_e4m3, __nv_fp8_e5m2 and their pairs and quads, as cuda_fp8.h has them.
// Included by words.h.

#pragma once

#include "halves.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

// ---- conversions ------------------------------------------------------------

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t saturation,
                                                __nv_fp8_interpretation_t kind) {
  const bool e4m3 = kind == __NV_E4M3;
  const unsigned x = maco_words::bits_as<unsigned>(value);
  const unsigned sign = (x >> 24) & 0x80u;
  const unsigned largest = e4m3 ? 0x7eu : 0x7bu;
  if (value != value) return 0x7f;
  unsigned code =
      std::isinf(value) ? 0xffu : maco_words::round_magnitude(x, e4m3 ? 3 : 2, e4m3 ? -6 : -14);
  // The code after the largest number is NaN in e4m3 and infinity in e5m2.
  if (code > largest) code = saturation == __NV_SATFINITE ? largest : largest + 1;
  return static_cast<__nv_fp8_storage_t>(sign | code);
}
inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(double value, __nv_saturation_t saturation,
                                                 __nv_fp8_interpretation_t kind) {
  if (value != value) {  // unlike a float's, CUDA keeps its sign and, in e5m2, its upper bits
    const uint64_t bits = maco_words::bits_as<uint64_t>(value);
    const uint64_t code = kind == __NV_E4M3 ? 0x7fu : 0x7eu | (bits >> 50 & 3u);
    return static_cast<__nv_fp8_storage_t>((bits >> 63) << 7 | code);
  }
  return __nv_cvt_float_to_fp8(maco_words::sticky_float(value), saturation, kind);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw value, __nv_saturation_t saturation,
                                                  __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__half(value), saturation, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw value,
                                                      __nv_saturation_t saturation,
                                                      __nv_fp8_interpretation_t kind) {
  return __nv_cvt_float_to_fp8(__nv_bfloat16(value), saturation, kind);
}

namespace maco_words {
inline __nv_fp8x2_storage_t join_fp8(__nv_fp8_storage_t low, __nv_fp8_storage_t high) {
  return static_cast<__nv_fp8x2_storage_t>(low | high << 8);
}
}  // namespace maco_words

inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturation,
                                                     __nv_fp8_interpretation_t kind) {
  return maco_words::join_fp8(__nv_cvt_float_to_fp8(v.x, saturation, kind),
                              __nv_cvt_float_to_fp8(v.y, saturation, kind));
}
inline __nv_fp8x2_storage_t __nv_cvt_double2_to_fp8x2(double2 v, __nv_saturation_t saturation,
                                                      __nv_fp8_interpretation_t kind) {
  return maco_words::join_fp8(__nv_cvt_double_to_fp8(v.x, saturation, kind),
                              __nv_cvt_double_to_fp8(v.y, saturation, kind));
}
inline __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v, __nv_saturation_t saturation,
                                                       __nv_fp8_interpretation_t kind) {
  return maco_words::join_fp8(__nv_cvt_halfraw_to_fp8(__half_raw{v.x}, saturation, kind),
                              __nv_cvt_halfraw_to_fp8(__half_raw{v.y}, saturation, kind));
}
inline __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw v,
                                                           __nv_saturation_t saturation,
                                                           __nv_fp8_interpretation_t kind) {
  return maco_words::join_fp8(
      __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw{v.x}, saturation, kind),
      __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw{v.y}, saturation, kind));
}

/// Exact. e5m2 is the upper half of a half.
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t kind) {
  const unsigned magnitude = bits & 0x7fu;
  const unsigned sign = (bits & 0x80u) << 8;
  if (kind == __NV_E5M2) {
    if (magnitude > 0x7cu) return __half_raw{0x7fff};
    return __half_raw{static_cast<unsigned short>(bits << 8)};
  }
  if (magnitude == 0x7fu) return __half_raw{0x7fff};
  // The bits where half has them are the number times 2^-8.
  const __half moved = __half_raw{static_cast<unsigned short>(magnitude << 7)};
  const __half value(static_cast<float>(moved) * 256.0f);
  return __half_raw{static_cast<unsigned short>(sign | value.__x)};
}
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t bits,
                                              __nv_fp8_interpretation_t kind) {
  const unsigned char low = static_cast<unsigned char>(bits & 0xff);
  const unsigned char high = static_cast<unsigned char>(bits >> 8);
  return __half2_raw{__nv_cvt_fp8_to_halfraw(low, kind).x, __nv_cvt_fp8_to_halfraw(high, kind).x};
}

// ---- types ------------------------------------------------------------------

// From and to integers through f32, as CUDA's.
#define MACO_FP8_FROM(T, I) \
  explicit T(I value) : T(static_cast<float>(value)) {}
#define MACO_FP8_TO(I) \
  explicit operator I() const { return ::maco_words::to_integer<I>(static_cast<float>(*this)); }

#define MACO_FP8(T, KIND)                                                                        \
  struct alignas(1) T {                                                                          \
    __nv_fp8_storage_t __x;                                                                      \
    T() = default;                                                                               \
    explicit T(float value) : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, KIND)) {}         \
    explicit T(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, KIND)) {}       \
    explicit T(__half value) : T(static_cast<float>(value)) {}                                   \
    explicit T(__nv_bfloat16 value) : T(static_cast<float>(value)) {}                            \
    MACO_FP8_FROM(T, short)                                                                      \
    MACO_FP8_FROM(T, unsigned short)                                                             \
    MACO_FP8_FROM(T, int)                                                                        \
    MACO_FP8_FROM(T, unsigned)                                                                   \
    MACO_FP8_FROM(T, long)                                                                       \
    MACO_FP8_FROM(T, unsigned long)                                                              \
    MACO_FP8_FROM(T, long long)                                                                  \
    MACO_FP8_FROM(T, unsigned long long)                                                         \
    explicit operator __half() const { return __nv_cvt_fp8_to_halfraw(__x, KIND); }              \
    explicit operator float() const {                                                            \
      return static_cast<float>(__half(__nv_cvt_fp8_to_halfraw(__x, KIND)));                     \
    }                                                                                            \
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }  \
    explicit operator __nv_bfloat16() const { return __nv_bfloat16(static_cast<float>(*this)); } \
    explicit operator bool() const { return (__x & 0x7fu) != 0; }                                \
    MACO_FP8_TO(char)                                                                            \
    MACO_FP8_TO(signed char)                                                                     \
    MACO_FP8_TO(unsigned char)                                                                   \
    MACO_FP8_TO(short)                                                                           \
    MACO_FP8_TO(unsigned short)                                                                  \
    MACO_FP8_TO(int)                                                                             \
    MACO_FP8_TO(unsigned)                                                                        \
    MACO_FP8_TO(long)                                                                            \
    MACO_FP8_TO(unsigned long)                                                                   \
    MACO_FP8_TO(long long)                                                                       \
    MACO_FP8_TO(unsigned long long)                                                              \
  };

MACO_FP8(__nv_fp8_e4m3, __NV_E4M3)
MACO_FP8(__nv_fp8_e5m2, __NV_E5M2)

#undef MACO_FP8
#undef MACO_FP8_TO
#undef MACO_FP8_FROM

#define MACO_FP8_PACKED(T2, T4, KIND)                                                          \
  struct alignas(2) T2 {                                                                       \
    __nv_fp8x2_storage_t __x;                                                                  \
    T2() = default;                                                                            \
    explicit T2(__half2 v) : __x(__nv_cvt_halfraw2_to_fp8x2(v, __NV_SATFINITE, KIND)) {}       \
    explicit T2(__nv_bfloat162 v)                                                              \
        : __x(__nv_cvt_bfloat16raw2_to_fp8x2(v, __NV_SATFINITE, KIND)) {}                      \
    explicit T2(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, KIND)) {}          \
    explicit T2(double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, KIND)) {}        \
    explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, KIND); }        \
    explicit operator float2() const {                                                         \
      return __half22float2(__nv_cvt_fp8x2_to_halfraw2(__x, KIND));                            \
    }                                                                                          \
  };                                                                                           \
  struct alignas(4) T4 {                                                                       \
    __nv_fp8x4_storage_t __x;                                                                  \
    T4() = default;                                                                            \
    explicit T4(T2 low, T2 high) : __x(low.__x | static_cast<unsigned>(high.__x) << 16) {}     \
    explicit T4(__half2 low, __half2 high) : T4(T2(low), T2(high)) {}                          \
    explicit T4(__nv_bfloat162 low, __nv_bfloat162 high) : T4(T2(low), T2(high)) {}            \
    explicit T4(float4 v) : T4(T2(make_float2(v.x, v.y)), T2(make_float2(v.z, v.w))) {}        \
    explicit T4(double4 v) : T4(T2(make_double2(v.x, v.y)), T2(make_double2(v.z, v.w))) {}     \
    explicit T4(double4_32a v) : T4(T2(make_double2(v.x, v.y)), T2(make_double2(v.z, v.w))) {} \
    explicit operator float4() const {                                                         \
      T2 low, high;                                                                            \
      low.__x = static_cast<unsigned short>(__x & 0xffffu);                                    \
      high.__x = static_cast<unsigned short>(__x >> 16);                                       \
      const float2 a(low), b(high);                                                            \
      return make_float4(a.x, a.y, b.x, b.y);                                                  \
    }                                                                                          \
  };

MACO_FP8_PACKED(__nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
MACO_FP8_PACKED(__nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)

#undef MACO_FP8_PACKED
