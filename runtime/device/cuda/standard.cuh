// What users' kernels need of C's headers, which NVRTC doesn't have.
#ifdef __CUDACC_RTC__
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using int_least8_t = signed char;
using int_least16_t = short;
using int_least32_t = int;
using int_least64_t = long long;
using uint_least8_t = unsigned char;
using uint_least16_t = unsigned short;
using uint_least32_t = unsigned int;
using uint_least64_t = unsigned long long;
using int_fast8_t = signed char;
using int_fast16_t = short;
using int_fast32_t = int;
using int_fast64_t = long long;
using uint_fast8_t = unsigned char;
using uint_fast16_t = unsigned short;
using uint_fast32_t = unsigned int;
using uint_fast64_t = unsigned long long;
using intptr_t = long long;
using uintptr_t = unsigned long long;
using intmax_t = long long;
using uintmax_t = unsigned long long;
using ssize_t = long;
using uint = unsigned int;
using ushort = unsigned short;
using ulong = unsigned long;
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
#ifndef INT8_MIN
#define INT8_MIN (-128)
#endif
#ifndef INT8_MAX
#define INT8_MAX 127
#endif
#ifndef UINT8_MAX
#define UINT8_MAX 255
#endif
#ifndef INT16_MIN
#define INT16_MIN (-32768)
#endif
#ifndef INT16_MAX
#define INT16_MAX 32767
#endif
#ifndef UINT16_MAX
#define UINT16_MAX 65535
#endif
#ifndef INT32_MIN
#define INT32_MIN (-2147483647 - 1)
#endif
#ifndef INT32_MAX
#define INT32_MAX 2147483647
#endif
#ifndef UINT32_MAX
#define UINT32_MAX 4294967295u
#endif
#ifndef INT64_MIN
#define INT64_MIN (-9223372036854775807ll - 1)
#endif
#ifndef INT64_MAX
#define INT64_MAX 9223372036854775807l
#endif
#ifndef UINT64_MAX
#define UINT64_MAX 18446744073709551615ul
#endif
#ifndef SIZE_MAX
#define SIZE_MAX 18446744073709551615ul
#endif
#ifndef INT_LEAST8_MIN
#define INT_LEAST8_MIN INT8_MIN
#endif
#ifndef INT_LEAST8_MAX
#define INT_LEAST8_MAX INT8_MAX
#endif
#ifndef UINT_LEAST8_MAX
#define UINT_LEAST8_MAX UINT8_MAX
#endif
#ifndef INT_LEAST16_MIN
#define INT_LEAST16_MIN INT16_MIN
#endif
#ifndef INT_LEAST16_MAX
#define INT_LEAST16_MAX INT16_MAX
#endif
#ifndef UINT_LEAST16_MAX
#define UINT_LEAST16_MAX UINT16_MAX
#endif
#ifndef INT_LEAST32_MIN
#define INT_LEAST32_MIN INT32_MIN
#endif
#ifndef INT_LEAST32_MAX
#define INT_LEAST32_MAX INT32_MAX
#endif
#ifndef UINT_LEAST32_MAX
#define UINT_LEAST32_MAX UINT32_MAX
#endif
#ifndef INT_LEAST64_MIN
#define INT_LEAST64_MIN INT64_MIN
#endif
#ifndef INT_LEAST64_MAX
#define INT_LEAST64_MAX INT64_MAX
#endif
#ifndef UINT_LEAST64_MAX
#define UINT_LEAST64_MAX UINT64_MAX
#endif
#ifndef INT_FAST8_MIN
#define INT_FAST8_MIN INT8_MIN
#endif
#ifndef INT_FAST8_MAX
#define INT_FAST8_MAX INT8_MAX
#endif
#ifndef UINT_FAST8_MAX
#define UINT_FAST8_MAX UINT8_MAX
#endif
#ifndef INT_FAST16_MIN
#define INT_FAST16_MIN INT16_MIN
#endif
#ifndef INT_FAST16_MAX
#define INT_FAST16_MAX INT16_MAX
#endif
#ifndef UINT_FAST16_MAX
#define UINT_FAST16_MAX UINT16_MAX
#endif
#ifndef INT_FAST32_MIN
#define INT_FAST32_MIN INT32_MIN
#endif
#ifndef INT_FAST32_MAX
#define INT_FAST32_MAX INT32_MAX
#endif
#ifndef UINT_FAST32_MAX
#define UINT_FAST32_MAX UINT32_MAX
#endif
#ifndef INT_FAST64_MIN
#define INT_FAST64_MIN INT64_MIN
#endif
#ifndef INT_FAST64_MAX
#define INT_FAST64_MAX INT64_MAX
#endif
#ifndef UINT_FAST64_MAX
#define UINT_FAST64_MAX UINT64_MAX
#endif
#ifndef INTPTR_MIN
#define INTPTR_MIN INT64_MIN
#endif
#ifndef INTPTR_MAX
#define INTPTR_MAX INT64_MAX
#endif
#ifndef UINTPTR_MAX
#define UINTPTR_MAX UINT64_MAX
#endif
#ifndef INTMAX_MIN
#define INTMAX_MIN INT64_MIN
#endif
#ifndef INTMAX_MAX
#define INTMAX_MAX INT64_MAX
#endif
#ifndef UINTMAX_MAX
#define UINTMAX_MAX UINT64_MAX
#endif
#ifndef PTRDIFF_MIN
#define PTRDIFF_MIN LONG_MIN
#endif
#ifndef PTRDIFF_MAX
#define PTRDIFF_MAX LONG_MAX
#endif
#ifndef INT8_C
#define INT8_C(value) value
#endif
#ifndef INT16_C
#define INT16_C(value) value
#endif
#ifndef INT32_C
#define INT32_C(value) value
#endif
#ifndef INT64_C
#define INT64_C(value) value##ll
#endif
#ifndef UINT8_C
#define UINT8_C(value) value
#endif
#ifndef UINT16_C
#define UINT16_C(value) value
#endif
#ifndef UINT32_C
#define UINT32_C(value) value##u
#endif
#ifndef UINT64_C
#define UINT64_C(value) value##ull
#endif
#ifndef INTMAX_C
#define INTMAX_C(value) value##ll
#endif
#ifndef UINTMAX_C
#define UINTMAX_C(value) value##ull
#endif
#ifndef CHAR_BIT
#define CHAR_BIT 8
#endif
#ifndef SCHAR_MIN
#define SCHAR_MIN (-128)
#endif
#ifndef SCHAR_MAX
#define SCHAR_MAX 127
#endif
#ifndef UCHAR_MAX
#define UCHAR_MAX 255
#endif
#ifndef CHAR_MIN
#define CHAR_MIN SCHAR_MIN
#endif
#ifndef CHAR_MAX
#define CHAR_MAX SCHAR_MAX
#endif
#ifndef SHRT_MIN
#define SHRT_MIN (-32768)
#endif
#ifndef SHRT_MAX
#define SHRT_MAX 32767
#endif
#ifndef USHRT_MAX
#define USHRT_MAX 65535
#endif
#ifndef INT_MIN
#define INT_MIN (-2147483647 - 1)
#endif
#ifndef INT_MAX
#define INT_MAX 2147483647
#endif
#ifndef UINT_MAX
#define UINT_MAX 4294967295u
#endif
#ifndef LONG_MIN
#define LONG_MIN (-9223372036854775807ll - 1)
#endif
#ifndef LONG_MAX
#define LONG_MAX 9223372036854775807l
#endif
#ifndef ULONG_MAX
#define ULONG_MAX 18446744073709551615ul
#endif
#ifndef LLONG_MIN
#define LLONG_MIN (-9223372036854775807ll - 1)
#endif
#ifndef LLONG_MAX
#define LLONG_MAX 9223372036854775807ll
#endif
#ifndef ULLONG_MAX
#define ULLONG_MAX 18446744073709551615ull
#endif
#ifndef FLT_MAX
#define FLT_MAX 3.40282346638528859812e+38f
#endif
#ifndef FLT_MIN
#define FLT_MIN 1.17549435082228750797e-38f
#endif
#ifndef FLT_EPSILON
#define FLT_EPSILON 1.1920928955078125e-07f
#endif
#ifndef FLT_DIG
#define FLT_DIG 6
#endif
#ifndef FLT_MANT_DIG
#define FLT_MANT_DIG 24
#endif
#ifndef DBL_MAX
#define DBL_MAX 1.7976931348623158e+308
#endif
#ifndef DBL_MIN
#define DBL_MIN 2.2250738585072014e-308
#endif
#ifndef DBL_EPSILON
#define DBL_EPSILON 2.2204460492503131e-16
#endif
#ifndef FLT_RADIX
#define FLT_RADIX 2
#endif
#ifndef FLT_EVAL_METHOD
#define FLT_EVAL_METHOD 0
#endif
#ifndef FLT_ROUNDS
#define FLT_ROUNDS 1
#endif
#ifndef DECIMAL_DIG
#define DECIMAL_DIG 17
#endif
#ifndef FLT_DECIMAL_DIG
#define FLT_DECIMAL_DIG 9
#endif
#ifndef FLT_MIN_EXP
#define FLT_MIN_EXP (-125)
#endif
#ifndef FLT_MAX_EXP
#define FLT_MAX_EXP 128
#endif
#ifndef FLT_MIN_10_EXP
#define FLT_MIN_10_EXP (-37)
#endif
#ifndef FLT_MAX_10_EXP
#define FLT_MAX_10_EXP 38
#endif
#ifndef FLT_TRUE_MIN
#define FLT_TRUE_MIN 1.401298464e-45f
#endif
#ifndef FLT_HAS_SUBNORM
#define FLT_HAS_SUBNORM 1
#endif
#ifndef DBL_DIG
#define DBL_DIG 15
#endif
#ifndef DBL_MANT_DIG
#define DBL_MANT_DIG 53
#endif
#ifndef DBL_DECIMAL_DIG
#define DBL_DECIMAL_DIG 17
#endif
#ifndef DBL_MIN_EXP
#define DBL_MIN_EXP (-1021)
#endif
#ifndef DBL_MAX_EXP
#define DBL_MAX_EXP 1024
#endif
#ifndef DBL_MIN_10_EXP
#define DBL_MIN_10_EXP (-307)
#endif
#ifndef DBL_MAX_10_EXP
#define DBL_MAX_10_EXP 308
#endif
#ifndef DBL_TRUE_MIN
#define DBL_TRUE_MIN 4.9406564584124654e-324
#endif
#ifndef DBL_HAS_SUBNORM
#define DBL_HAS_SUBNORM 1
#endif
#ifndef INFINITY
#define INFINITY (__builtin_bit_cast(float, 0x7f800000))
#endif
#ifndef NAN
#define NAN (__builtin_bit_cast(float, 0x7fffffff))
#endif
#ifndef HUGE_VAL
#define HUGE_VAL (__builtin_bit_cast(double, 0x7ff0000000000000ll))
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#endif
#ifndef M_E
#define M_E 2.7182818284590452354
#endif
#ifndef M_LOG2E
#define M_LOG2E 1.4426950408889634074
#endif
#ifndef M_LOG10E
#define M_LOG10E 0.43429448190325182765
#endif
#ifndef M_LN2
#define M_LN2 0.69314718055994530942
#endif
#ifndef M_LN10
#define M_LN10 2.30258509299404568402
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
#ifndef M_PI_2
#define M_PI_2 1.57079632679489661923
#endif
#ifndef M_PI_4
#define M_PI_4 0.78539816339744830962
#endif
#ifndef M_1_PI
#define M_1_PI 0.31830988618379067154
#endif
#ifndef M_2_PI
#define M_2_PI 0.63661977236758134308
#endif
#ifndef M_2_SQRTPI
#define M_2_SQRTPI 1.12837916709551257390
#endif
#ifndef M_SQRT2
#define M_SQRT2 1.41421356237309504880
#endif
#ifndef M_SQRT1_2
#define M_SQRT1_2 0.70710678118654752440
#endif
namespace std {
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using size_t = decltype(sizeof(0));
template <class T>
MACO_FN constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
MACO_FN constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
}  // namespace std
#endif
