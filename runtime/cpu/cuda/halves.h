// halves.h: __half and __nv_bfloat16, as cuda_fp16.h and cuda_bf16.h have them.
// Included by words.h.
//
// A result is computed in f32 (or exactly) and rounded once, which gives the bits of the hardware:
// f32 has more than twice the digits of both. The functions that both types have are in
// half_functions.h.

#pragma once

#include "small_floats.h"

struct __half_raw {
  unsigned short x;
};
struct __half2_raw {
  unsigned short x, y;
};
struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat162_raw {
  unsigned short x, y;
};

struct __nv_bfloat16;

// Constructors and conversions of a 16-bit float; FROM and TO convert between bits and f32.
#define MACO_HALF_MEMBERS(T, FROM, TO)                                                          \
  T() = default;                                                                                \
  constexpr T(const T##_raw& raw) : __x(raw.x) {}                                               \
  T(float value) : __x(FROM(value)) {}                                                          \
  T(double value) : __x(FROM(::maco_words::sticky_float(value))) {}                             \
  T(short value) : __x(FROM(static_cast<float>(value))) {}                                      \
  T(unsigned short value) : __x(FROM(static_cast<float>(value))) {}                             \
  T(int value) : T(static_cast<double>(value)) {}                                               \
  T(unsigned value) : T(static_cast<double>(value)) {}                                          \
  T(long value) : T(static_cast<long long>(value)) {}                                           \
  T(unsigned long value) : T(static_cast<unsigned long long>(value)) {}                         \
  T(long long value) : __x(FROM(::maco_words::sticky_float(value))) {}                          \
  T(unsigned long long value) : __x(FROM(::maco_words::sticky_float(value))) {}                 \
  T& operator=(const T##_raw& raw) {                                                            \
    __x = raw.x;                                                                                \
    return *this;                                                                               \
  }                                                                                             \
  T& operator=(float value) { return *this = T(value); }                                        \
  T& operator=(double value) { return *this = T(value); }                                       \
  T& operator=(short value) { return *this = T(value); }                                        \
  T& operator=(unsigned short value) { return *this = T(value); }                               \
  T& operator=(int value) { return *this = T(value); }                                          \
  T& operator=(unsigned value) { return *this = T(value); }                                     \
  T& operator=(long long value) { return *this = T(value); }                                    \
  T& operator=(unsigned long long value) { return *this = T(value); }                           \
  operator T##_raw() const { return T##_raw{__x}; }                                             \
  operator float() const { return TO(__x); }                                                    \
  operator signed char() const { return ::maco_words::to_integer<signed char>(TO(__x)); }       \
  operator unsigned char() const { return ::maco_words::to_integer<unsigned char>(TO(__x)); }   \
  operator char() const { return ::maco_words::to_integer<char>(TO(__x)); }                     \
  operator short() const { return ::maco_words::to_integer<short>(TO(__x)); }                   \
  operator unsigned short() const { return ::maco_words::to_integer<unsigned short>(TO(__x)); } \
  operator int() const { return ::maco_words::to_integer<int>(TO(__x)); }                       \
  operator unsigned() const { return ::maco_words::to_integer<unsigned>(TO(__x)); }             \
  operator long() const { return ::maco_words::to_integer<long>(TO(__x)); }                     \
  operator unsigned long() const { return ::maco_words::to_integer<unsigned long>(TO(__x)); }   \
  operator long long() const { return ::maco_words::to_integer<long long>(TO(__x)); }           \
  operator unsigned long long() const {                                                         \
    return ::maco_words::to_integer<unsigned long long>(TO(__x));                               \
  }                                                                                             \
  constexpr operator bool() const { return (__x & 0x7fffu) != 0; }

struct alignas(2) __half {
  unsigned short __x;
  MACO_HALF_MEMBERS(__half, ::maco_words::float_to_half_bits, ::maco_words::half_bits_to_float)
  explicit __half(__nv_bfloat16 value);
};

struct alignas(2) __nv_bfloat16 {
  unsigned short __x;
  MACO_HALF_MEMBERS(__nv_bfloat16, ::maco_words::float_to_bfloat16_bits,
                    ::maco_words::bfloat16_bits_to_float)
  explicit __nv_bfloat16(__half value) : __nv_bfloat16(static_cast<float>(value)) {}
};

#undef MACO_HALF_MEMBERS

inline __half::__half(__nv_bfloat16 value) : __half(static_cast<float>(value)) {}

struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  constexpr __half2(const __half& low, const __half& high) : x(low), y(high) {}
  __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
  operator __half2_raw() const { return __half2_raw{x.__x, y.__x}; }
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  __nv_bfloat162() = default;
  constexpr __nv_bfloat162(const __nv_bfloat16& low, const __nv_bfloat16& high) : x(low), y(high) {}
  __nv_bfloat162(const __nv_bfloat162_raw& raw)
      : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
  operator __nv_bfloat162_raw() const { return __nv_bfloat162_raw{x.__x, y.__x}; }
};

using half = __half;
using half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __half __ushort_as_half(unsigned short bits) { return __half_raw{bits}; }
inline __half __short_as_half(short bits) { return __half_raw{static_cast<unsigned short>(bits)}; }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
inline short __half_as_short(__half h) { return static_cast<short>(h.__x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
inline __nv_bfloat16 __short_as_bfloat16(short bits) {
  return __nv_bfloat16_raw{static_cast<unsigned short>(bits)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 h) { return static_cast<short>(h.__x); }

#define CUDART_INF_FP16 __ushort_as_half(static_cast<unsigned short>(0x7c00u))
#define CUDART_NAN_FP16 __ushort_as_half(static_cast<unsigned short>(0x7fffu))
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(static_cast<unsigned short>(0x0001u))
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(static_cast<unsigned short>(0x7bffu))
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x8000u))
#define CUDART_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x0000u))
#define CUDART_ONE_FP16 __ushort_as_half(static_cast<unsigned short>(0x3c00u))
#define CUDART_INF_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7f80u))
#define CUDART_NAN_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7fffu))
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0001u))
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7f7fu))
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x8000u))
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0000u))
#define CUDART_ONE_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x3f80u))

// ---- conversions: one rounding of the exact value ---------------------------

namespace maco_words {

inline __half to_half(float value, Rounding rounding) {
  return __ushort_as_half(float_to_half_bits(value, rounding));
}
inline __nv_bfloat16 to_bfloat16(float value, Rounding rounding) {
  return __ushort_as_bfloat16(float_to_bfloat16_bits(value, rounding));
}

}  // namespace maco_words

// Conversions of the type T, named NAME in functions, with the rounding direction _SUFFIX.
#define MACO_HALF_INTEGER(T, NAME, I, INAME, SUFFIX, ROUNDING)                                    \
  inline T __##INAME##2##NAME##_##SUFFIX(I value) {                                               \
    return ::maco_words::to_##NAME(                                                               \
        ::maco_words::sticky_float(                                                               \
            static_cast<                                                                          \
                std::conditional<std::is_signed<I>::value, long long, unsigned long long>::type>( \
                value)),                                                                          \
        ::maco_words::Rounding::ROUNDING);                                                        \
  }                                                                                               \
  inline I __##NAME##2##INAME##_##SUFFIX(T h) {                                                   \
    return ::maco_words::round_to_integer<I>(static_cast<float>(h),                               \
                                             ::maco_words::Rounding::ROUNDING);                   \
  }
#define MACO_HALF_ROUNDING(T, NAME, SUFFIX, ROUNDING)                        \
  inline T __float2##NAME##_##SUFFIX(float value) {                          \
    return ::maco_words::to_##NAME(value, ::maco_words::Rounding::ROUNDING); \
  }                                                                          \
  MACO_HALF_INTEGER(T, NAME, short, short, SUFFIX, ROUNDING)                 \
  MACO_HALF_INTEGER(T, NAME, unsigned short, ushort, SUFFIX, ROUNDING)       \
  MACO_HALF_INTEGER(T, NAME, int, int, SUFFIX, ROUNDING)                     \
  MACO_HALF_INTEGER(T, NAME, unsigned, uint, SUFFIX, ROUNDING)               \
  MACO_HALF_INTEGER(T, NAME, long long, ll, SUFFIX, ROUNDING)                \
  MACO_HALF_INTEGER(T, NAME, unsigned long long, ull, SUFFIX, ROUNDING)
#define MACO_HALF_CONVERSIONS(T, NAME)                                               \
  MACO_HALF_ROUNDING(T, NAME, rn, kNearest)                                          \
  MACO_HALF_ROUNDING(T, NAME, rz, kZero)                                             \
  MACO_HALF_ROUNDING(T, NAME, ru, kUp)                                               \
  MACO_HALF_ROUNDING(T, NAME, rd, kDown)                                             \
  inline T __float2##NAME(float value) { return T(value); }                          \
  inline T __double2##NAME(double value) { return T(value); }                        \
  inline float __##NAME##2float(T h) { return static_cast<float>(h); }               \
  inline signed char __##NAME##2char_rz(T h) { return static_cast<signed char>(h); } \
  inline unsigned char __##NAME##2uchar_rz(T h) { return static_cast<unsigned char>(h); }

MACO_HALF_CONVERSIONS(__half, half)
MACO_HALF_CONVERSIONS(__nv_bfloat16, bfloat16)

#undef MACO_HALF_CONVERSIONS
#undef MACO_HALF_ROUNDING
#undef MACO_HALF_INTEGER

// Functions of the pair type T2, named NAME2, with scalars named SCALAR.
#define MACO_HALF_PAIRS(T, T2, NAME, NAME2, SPLAT, JOIN)                                 \
  inline T2 make_##NAME2(T x, T y) { return T2(x, y); }                                  \
  inline T2 SPLAT(T h) { return T2(h, h); }                                              \
  inline T2 JOIN(T low, T high) { return T2(low, high); }                                \
  inline T2 __float2##NAME2##_rn(float v) { return T2(T(v), T(v)); }                     \
  inline T2 __floats2##NAME2##_rn(float low, float high) { return T2(T(low), T(high)); } \
  inline T2 __float22##NAME2##_rn(float2 v) { return T2(T(v.x), T(v.y)); }               \
  inline float2 __##NAME2##2float2(T2 v) { return make_float2(v.x, v.y); }               \
  inline T __low2##NAME(T2 v) { return v.x; }                                            \
  inline T __high2##NAME(T2 v) { return v.y; }                                           \
  inline T2 __low2##NAME2(T2 v) { return T2(v.x, v.x); }                                 \
  inline T2 __high2##NAME2(T2 v) { return T2(v.y, v.y); }                                \
  inline T2 __lows2##NAME2(T2 a, T2 b) { return T2(a.x, b.x); }                          \
  inline T2 __highs2##NAME2(T2 a, T2 b) { return T2(a.y, b.y); }

MACO_HALF_PAIRS(__half, __half2, half, half2, __half2half2, __halves2half2)
MACO_HALF_PAIRS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162, __bfloat162bfloat162,
                __halves2bfloat162)

#undef MACO_HALF_PAIRS

#define MACO_HALF __half
#define MACO_HALF2 __half2
#include "half_functions.h"
#undef MACO_HALF
#undef MACO_HALF2

#define MACO_HALF __nv_bfloat16
#define MACO_HALF2 __nv_bfloat162
#include "half_functions.h"
#undef MACO_HALF
#undef MACO_HALF2
