// cuda_math.h: the floating-point functions that CUDA has and <math.h> lacks. Included by words.h.
//
// Approximate functions of a GPU (__expf, __sinf, ...) are exact to rounding here.

#pragma once

#include "small_floats.h"

// Newer C libraries declare some of these. As templates they give way to the library's own.
#define MACO_MAYBE template <int = 0>

// ---- bits -------------------------------------------------------------------

inline int __float_as_int(float x) { return maco_words::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return maco_words::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return maco_words::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return maco_words::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return maco_words::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return maco_words::bits_as<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) {
  return static_cast<int>(__double_as_longlong(x) & 0xffffffffll);
}
inline double __hiloint2double(int high, int low) {
  return maco_words::bits_as<double>(static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 |
                                     static_cast<unsigned>(low));
}

// ---- min and max ------------------------------------------------------------

#define MACO_MIN_MAX(T, A, B)                                                             \
  inline T min(A a, B b) {                                                                \
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); \
  }                                                                                       \
  inline T max(A a, B b) {                                                                \
    return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); \
  }
#define MACO_MIN_MAX_MIXED(I, U) \
  MACO_MIN_MAX(I, I, I)          \
  MACO_MIN_MAX(U, U, U)          \
  MACO_MIN_MAX(U, I, U)          \
  MACO_MIN_MAX(U, U, I)
MACO_MIN_MAX_MIXED(int, unsigned)
MACO_MIN_MAX_MIXED(long, unsigned long)
MACO_MIN_MAX_MIXED(long long, unsigned long long)
#undef MACO_MIN_MAX_MIXED
#undef MACO_MIN_MAX

// The result for a number and NaN is the number.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
inline double min(float a, double b) { return std::fmin(static_cast<double>(a), b); }
inline double max(float a, double b) { return std::fmax(static_cast<double>(a), b); }
inline double min(double a, float b) { return std::fmin(a, static_cast<double>(b)); }
inline double max(double a, float b) { return std::fmax(a, static_cast<double>(b)); }

inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
inline long long llmin(long long a, long long b) { return min(a, b); }
inline long long llmax(long long a, long long b) { return max(a, b); }
inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

// ---- functions --------------------------------------------------------------

namespace maco_words {

constexpr double kPi = 3.14159265358979323846;
constexpr double kSqrtHalf = 0.70710678118654752440;

// sin(pi x): exact for whole and half rotations.
inline double sin_pi(double x) {
  if (!std::isfinite(x)) return NAN;
  const double r = std::remainder(x, 2.0);  // -1..1
  if (r == 0 || std::fabs(r) == 1) return std::copysign(0.0, x);
  if (r > 0.5) return std::sin(kPi * (1.0 - r));
  if (r < -0.5) return -std::sin(kPi * (1.0 + r));
  return std::sin(kPi * r);
}
inline double cos_pi(double x) {
  if (!std::isfinite(x)) return NAN;
  const double r = std::fabs(std::remainder(x, 2.0));  // 0..1
  if (r == 0.5) return 0.0;
  if (r < 0.25) return std::cos(kPi * r);
  if (r > 0.75) return -std::cos(kPi * (1.0 - r));
  return std::sin(kPi * (0.5 - r));
}

// exp(x^2) erfc(x).
inline double scaled_erfc(double x) {
  if (x < 25.0) return std::exp(x * x) * std::erfc(x);
  const double s = 0.5 / (x * x);
  return 1.0 / (x * std::sqrt(kPi)) * (1.0 - s * (1.0 - 3.0 * s * (1.0 - 5.0 * s)));
}

// y with erfc(y) = x, by Newton's steps on log(erfc(y)), whose slope hardly changes.
inline double inverse_erfc(double x) {
  if (!(x >= 0.0 && x <= 2.0)) return NAN;
  if (x == 0.0) return INFINITY;
  if (x == 2.0) return -INFINITY;
  if (x > 1.0) return -inverse_erfc(2.0 - x);
  double y = x > 0.1 ? 1.0 - x : std::sqrt(-std::log(x));
  for (int i = 0; i < 40; ++i) {
    const double value = std::erfc(y);
    const double slope = -2.0 / std::sqrt(kPi) * std::exp(-y * y);
    const double step = value / slope * std::log(value / x);
    y -= step;
    if (!(std::fabs(step) > 1e-16 * std::fabs(y))) break;
  }
  return y;
}
// y with erf(y) = x, exact around 0 too.
inline double inverse_erf(double x) {
  if (std::fabs(x) > 0.5) return x > 0 ? inverse_erfc(1.0 - x) : -inverse_erfc(1.0 + x);
  double y = x * std::sqrt(kPi) / 2;
  for (int i = 0; i < 6; ++i) y -= (std::erf(y) - x) * std::sqrt(kPi) / 2 * std::exp(y * y);
  return y;
}

inline double norm_of(const double* p, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum = std::hypot(sum, p[i]);
  return sum;
}

}  // namespace maco_words

// A function of one double: for float as NAMEf and as NAME, computed in double.
#define MACO_FUNCTION_1(NAME, EXPRESSION)                        \
  MACO_MAYBE inline double NAME(double x) { return EXPRESSION; } \
  MACO_MAYBE inline float NAME##f(float value) {                 \
    const double x = value;                                      \
    return static_cast<float>(EXPRESSION);                       \
  }                                                              \
  MACO_MAYBE inline float NAME(float x) { return NAME##f(x); }

MACO_FUNCTION_1(rsqrt, 1.0 / std::sqrt(x))
MACO_FUNCTION_1(rcbrt, 1.0 / std::cbrt(x))
MACO_FUNCTION_1(exp10, std::pow(10.0, x))
MACO_FUNCTION_1(sinpi, maco_words::sin_pi(x))
MACO_FUNCTION_1(cospi, maco_words::cos_pi(x))
MACO_FUNCTION_1(erfinv, maco_words::inverse_erf(x))
MACO_FUNCTION_1(erfcinv, maco_words::inverse_erfc(x))
MACO_FUNCTION_1(erfcx, maco_words::scaled_erfc(x))
MACO_FUNCTION_1(normcdf, 0.5 * std::erfc(-x * maco_words::kSqrtHalf))
MACO_FUNCTION_1(normcdfinv, -std::sqrt(2.0) * maco_words::inverse_erfc(2.0 * x))
#ifdef __cpp_lib_math_special_functions
MACO_FUNCTION_1(cyl_bessel_i0, std::cyl_bessel_i(0.0, std::fabs(x)))
MACO_FUNCTION_1(cyl_bessel_i1, std::copysign(std::cyl_bessel_i(1.0, std::fabs(x)), x))
#endif
#undef MACO_FUNCTION_1

MACO_MAYBE inline void sincos(double x, double* s, double* c) {
  *s = std::sin(x);
  *c = std::cos(x);
}
MACO_MAYBE inline void sincosf(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
MACO_MAYBE inline void sincos(float x, float* s, float* c) { sincosf(x, s, c); }
MACO_MAYBE inline void sincospi(double x, double* s, double* c) {
  *s = sinpi(x);
  *c = cospi(x);
}
MACO_MAYBE inline void sincospif(float x, float* s, float* c) {
  *s = sinpif(x);
  *c = cospif(x);
}
MACO_MAYBE inline void sincospi(float x, float* s, float* c) { sincospif(x, s, c); }

inline float fdividef(float a, float b) { return a / b; }
inline float fdivide(float a, float b) { return a / b; }
inline double fdivide(double a, double b) { return a / b; }

inline double norm(int n, const double* p) { return maco_words::norm_of(p, n); }
inline double norm3d(double a, double b, double c) { return std::hypot(a, b, c); }
inline double norm4d(double a, double b, double c, double d) {
  return std::hypot(std::hypot(a, b, c), d);
}
inline double rhypot(double a, double b) { return 1.0 / std::hypot(a, b); }
inline double rnorm(int n, const double* p) { return 1.0 / norm(n, p); }
inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
inline double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
inline float normf(int n, const float* p) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(p[i]) * static_cast<double>(p[i]);
  return static_cast<float>(std::sqrt(sum));
}
inline float rnormf(int n, const float* p) { return 1.0f / normf(n, p); }
inline float norm3df(float a, float b, float c) {
  const float p[] = {a, b, c};
  return normf(3, p);
}
inline float norm4df(float a, float b, float c, float d) {
  const float p[] = {a, b, c, d};
  return normf(4, p);
}
inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
inline float rnorm4df(float a, float b, float c, float d) { return 1.0f / norm4df(a, b, c, d); }
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }

// ---- intrinsics -------------------------------------------------------------

// The C library declares functions of its own with some of these names.
#define __expf maco_words_expf
#define __exp10f maco_words_exp10f
#define __logf maco_words_logf
#define __log2f maco_words_log2f
#define __log10f maco_words_log10f
#define __powf maco_words_powf
#define __sinf maco_words_sinf
#define __cosf maco_words_cosf
#define __sincosf maco_words_sincosf
#define __tanf maco_words_tanf
#define __tanhf maco_words_tanhf

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
// As on a GPU, NaN for negative x.
inline float __powf(float x, float y) {
  return static_cast<float>(std::exp2(static_cast<double>(y) * std::log2(static_cast<double>(x))));
}
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline void __sincosf(float x, float* s, float* c) {
  *s = sinf(x);
  *c = cosf(x);
}
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }

namespace maco_words {

// Hides the value from the compiler, which then doesn't move its computation across calls.
template <class T>
inline void hide(T& value) {
  __asm__ volatile("" : "+m"(value) : : "memory");
}

/// A function's result in another direction of rounding.
template <int kDirection, class T, class... A>
inline T directed(T (*nearest)(A...), NotDeduced<A>... operands) {
  const int before = std::fegetround();
  std::fesetround(kDirection);
  (hide(operands), ...);
  T result = nearest(operands...);
  hide(result);
  std::fesetround(before);
  return result;
}

}  // namespace maco_words

#define MACO_DIRECTED(T, NAME, PARAMETERS, EXPRESSION, ...)             \
  inline T NAME##_rn PARAMETERS { return EXPRESSION; }                  \
  inline T NAME##_rz PARAMETERS {                                       \
    return maco_words::directed<FE_TOWARDZERO>(NAME##_rn, __VA_ARGS__); \
  }                                                                     \
  inline T NAME##_ru PARAMETERS {                                       \
    return maco_words::directed<FE_UPWARD>(NAME##_rn, __VA_ARGS__);     \
  }                                                                     \
  inline T NAME##_rd PARAMETERS {                                       \
    return maco_words::directed<FE_DOWNWARD>(NAME##_rn, __VA_ARGS__);   \
  }
#define MACO_DIRECTED_1(T, NAME, A, EXPRESSION) MACO_DIRECTED(T, NAME, (A a), EXPRESSION, a)
#define MACO_DIRECTED_2(T, NAME, EXPRESSION) MACO_DIRECTED(T, NAME, (T a, T b), EXPRESSION, a, b)
#define MACO_DIRECTED_3(T, NAME, EXPRESSION) \
  MACO_DIRECTED(T, NAME, (T a, T b, T c), EXPRESSION, a, b, c)

MACO_DIRECTED_2(float, __fadd, a + b)
MACO_DIRECTED_2(float, __fsub, a - b)
MACO_DIRECTED_2(float, __fmul, (a) * (b))
MACO_DIRECTED_2(float, __fdiv, a / b)
MACO_DIRECTED_3(float, __fmaf, std::fma(a, b, c))
MACO_DIRECTED_1(float, __fsqrt, float, std::sqrt(a))
MACO_DIRECTED_1(float, __frcp, float, 1.0f / a)
MACO_DIRECTED_2(double, __dadd, a + b)
MACO_DIRECTED_2(double, __dsub, a - b)
MACO_DIRECTED_2(double, __dmul, (a) * (b))
MACO_DIRECTED_2(double, __ddiv, a / b)
MACO_DIRECTED_3(double, __fma, std::fma(a, b, c))
MACO_DIRECTED_1(double, __dsqrt, double, std::sqrt(a))
MACO_DIRECTED_1(double, __drcp, double, 1.0 / a)

inline float __fmaf_ieee_rn(float a, float b, float c) { return std::fma(a, b, c); }

// ---- conversions ------------------------------------------------------------

MACO_DIRECTED_1(float, __int2float, int, static_cast<float>(a))
MACO_DIRECTED_1(float, __uint2float, unsigned, static_cast<float>(a))
MACO_DIRECTED_1(float, __ll2float, long long, static_cast<float>(a))
MACO_DIRECTED_1(double, __ll2double, long long, static_cast<double>(a))
MACO_DIRECTED_1(float, __double2float, double, static_cast<float>(a))

#undef MACO_DIRECTED_3
#undef MACO_DIRECTED_2
#undef MACO_DIRECTED_1
#undef MACO_DIRECTED

// Computed by bits: compilers' conversions of numbers from 2^63 on are right only for rounding to
// nearest.
namespace maco_words {

template <class T, int kDigits>
inline T from_unsigned(unsigned long long value, Rounding rounding) {
  if (value >> kDigits == 0) return static_cast<T>(value);
  const int shift = 64 - kDigits - __builtin_clzll(value);
  unsigned long long kept = value >> shift;
  const unsigned long long rest = value & ((1ull << shift) - 1);
  const unsigned long long half = 1ull << (shift - 1);
  const bool away = rounding == Rounding::kNearest
                        ? rest > half || (rest == half && (kept & 1) != 0)
                        : rounding == Rounding::kUp && rest != 0;
  if (away) ++kept;
  return std::ldexp(static_cast<T>(kept), shift);
}

}  // namespace maco_words

#define MACO_FROM_UNSIGNED(SUFFIX, ROUNDING)                                         \
  inline float __ull2float_##SUFFIX(unsigned long long x) {                          \
    return maco_words::from_unsigned<float, 24>(x, maco_words::Rounding::ROUNDING);  \
  }                                                                                  \
  inline double __ull2double_##SUFFIX(unsigned long long x) {                        \
    return maco_words::from_unsigned<double, 53>(x, maco_words::Rounding::ROUNDING); \
  }
MACO_FROM_UNSIGNED(rn, kNearest)
MACO_FROM_UNSIGNED(rz, kZero)
MACO_FROM_UNSIGNED(ru, kUp)
MACO_FROM_UNSIGNED(rd, kDown)
#undef MACO_FROM_UNSIGNED

inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

#define MACO_TO_INTEGER(F, FNAME, I, INAME)                                                       \
  inline I __##FNAME##2##INAME##_rn(F x) { return maco_words::to_integer<I>(std::nearbyint(x)); } \
  inline I __##FNAME##2##INAME##_rz(F x) { return maco_words::to_integer<I>(x); }                 \
  inline I __##FNAME##2##INAME##_ru(F x) { return maco_words::to_integer<I>(std::ceil(x)); }      \
  inline I __##FNAME##2##INAME##_rd(F x) { return maco_words::to_integer<I>(std::floor(x)); }

MACO_TO_INTEGER(float, float, int, int)
MACO_TO_INTEGER(float, float, unsigned, uint)
MACO_TO_INTEGER(float, float, long long, ll)
MACO_TO_INTEGER(float, float, unsigned long long, ull)
MACO_TO_INTEGER(double, double, int, int)
MACO_TO_INTEGER(double, double, unsigned, uint)
MACO_TO_INTEGER(double, double, long long, ll)
MACO_TO_INTEGER(double, double, unsigned long long, ull)
#undef MACO_TO_INTEGER

#undef MACO_MAYBE
