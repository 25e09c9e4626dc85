// half_functions.h: arithmetic, comparisons and functions of a 16-bit float MACO_HALF and its pair
// MACO_HALF2. halves.h includes it once for each type, so it has no guard.

// ---- arithmetic -------------------------------------------------------------

inline bool __hisnan(MACO_HALF a) { return std::isnan(static_cast<float>(a)); }
inline int __hisinf(MACO_HALF a) {
  const float f = a;
  return std::isinf(f) ? (f > 0 ? 1 : -1) : 0;
}

inline MACO_HALF __hadd(MACO_HALF a, MACO_HALF b) {
  return MACO_HALF(static_cast<float>(a) + static_cast<float>(b));
}
inline MACO_HALF __hsub(MACO_HALF a, MACO_HALF b) {
  return MACO_HALF(static_cast<float>(a) - static_cast<float>(b));
}
inline MACO_HALF __hmul(MACO_HALF a, MACO_HALF b) {
  return MACO_HALF(static_cast<float>(a) * static_cast<float>(b));
}
inline MACO_HALF __hdiv(MACO_HALF a, MACO_HALF b) {
  return MACO_HALF(static_cast<float>(a) / static_cast<float>(b));
}
inline MACO_HALF __hfma(MACO_HALF a, MACO_HALF b, MACO_HALF c) {
  return MACO_HALF(maco_words::sticky_fma(a, b, c));
}
inline MACO_HALF __hneg(MACO_HALF a) { return MACO_HALF(-static_cast<float>(a)); }
inline MACO_HALF __habs(MACO_HALF a) { return MACO_HALF(std::fabs(static_cast<float>(a))); }
inline MACO_HALF __hadd_rn(MACO_HALF a, MACO_HALF b) { return __hadd(a, b); }
inline MACO_HALF __hsub_rn(MACO_HALF a, MACO_HALF b) { return __hsub(a, b); }
inline MACO_HALF __hmul_rn(MACO_HALF a, MACO_HALF b) { return __hmul(a, b); }

// _sat: to 0..1, NaN to 0. _relu: negative to 0.
namespace maco_words {
inline MACO_HALF saturated(MACO_HALF a) {
  const float f = a;
  return f > 0.0f ? (f < 1.0f ? a : MACO_HALF(1.0f)) : MACO_HALF(0.0f);
}
inline MACO_HALF not_negative(MACO_HALF a) {
  return static_cast<float>(a) <= 0.0f ? MACO_HALF(0.0f) : a;
}
}  // namespace maco_words
inline MACO_HALF __hadd_sat(MACO_HALF a, MACO_HALF b) {
  return maco_words::saturated(__hadd(a, b));
}
inline MACO_HALF __hsub_sat(MACO_HALF a, MACO_HALF b) {
  return maco_words::saturated(__hsub(a, b));
}
inline MACO_HALF __hmul_sat(MACO_HALF a, MACO_HALF b) {
  return maco_words::saturated(__hmul(a, b));
}
inline MACO_HALF __hfma_sat(MACO_HALF a, MACO_HALF b, MACO_HALF c) {
  return maco_words::saturated(__hfma(a, b, c));
}
inline MACO_HALF __hfma_relu(MACO_HALF a, MACO_HALF b, MACO_HALF c) {
  return maco_words::not_negative(__hfma(a, b, c));
}

// The result for a number and NaN is the number, for two NaNs the canonical NaN; -0 is below +0.
inline MACO_HALF __hmax(MACO_HALF a, MACO_HALF b) {
  const float x = a, y = b;
  if (x != x) return y != y ? MACO_HALF(NAN) : b;
  if (x == y) return std::signbit(x) ? b : a;
  return x > y || y != y ? a : b;
}
inline MACO_HALF __hmin(MACO_HALF a, MACO_HALF b) {
  const float x = a, y = b;
  if (x != x) return y != y ? MACO_HALF(NAN) : b;
  if (x == y) return std::signbit(x) ? a : b;
  return x < y || y != y ? a : b;
}
inline MACO_HALF __hmax_nan(MACO_HALF a, MACO_HALF b) {
  return __hisnan(a) || __hisnan(b) ? MACO_HALF(NAN) : __hmax(a, b);
}
inline MACO_HALF __hmin_nan(MACO_HALF a, MACO_HALF b) {
  return __hisnan(a) || __hisnan(b) ? MACO_HALF(NAN) : __hmin(a, b);
}

inline MACO_HALF operator+(const MACO_HALF& a, const MACO_HALF& b) { return __hadd(a, b); }
inline MACO_HALF operator-(const MACO_HALF& a, const MACO_HALF& b) { return __hsub(a, b); }
inline MACO_HALF operator*(const MACO_HALF& a, const MACO_HALF& b) { return __hmul(a, b); }
inline MACO_HALF operator/(const MACO_HALF& a, const MACO_HALF& b) { return __hdiv(a, b); }
inline MACO_HALF& operator+=(MACO_HALF& a, const MACO_HALF& b) { return a = __hadd(a, b); }
inline MACO_HALF& operator-=(MACO_HALF& a, const MACO_HALF& b) { return a = __hsub(a, b); }
inline MACO_HALF& operator*=(MACO_HALF& a, const MACO_HALF& b) { return a = __hmul(a, b); }
inline MACO_HALF& operator/=(MACO_HALF& a, const MACO_HALF& b) { return a = __hdiv(a, b); }
inline MACO_HALF& operator++(MACO_HALF& a) { return a = __hadd(a, MACO_HALF(1.0f)); }
inline MACO_HALF& operator--(MACO_HALF& a) { return a = __hsub(a, MACO_HALF(1.0f)); }
inline MACO_HALF operator++(MACO_HALF& a, int) {
  const MACO_HALF before = a;
  ++a;
  return before;
}
inline MACO_HALF operator--(MACO_HALF& a, int) {
  const MACO_HALF before = a;
  --a;
  return before;
}
inline MACO_HALF operator+(const MACO_HALF& a) { return a; }
inline MACO_HALF operator-(const MACO_HALF& a) { return __hneg(a); }

// ---- functions --------------------------------------------------------------

inline MACO_HALF hexp(MACO_HALF a) { return MACO_HALF(std::exp(static_cast<double>(float(a)))); }
inline MACO_HALF hexp2(MACO_HALF a) { return MACO_HALF(std::exp2(static_cast<double>(float(a)))); }
inline MACO_HALF hexp10(MACO_HALF a) {
  return MACO_HALF(std::pow(10.0, static_cast<double>(float(a))));
}
inline MACO_HALF hlog(MACO_HALF a) { return MACO_HALF(std::log(static_cast<double>(float(a)))); }
inline MACO_HALF hlog2(MACO_HALF a) { return MACO_HALF(std::log2(static_cast<double>(float(a)))); }
inline MACO_HALF hlog10(MACO_HALF a) {
  return MACO_HALF(std::log10(static_cast<double>(float(a))));
}
inline MACO_HALF hsin(MACO_HALF a) { return MACO_HALF(std::sin(static_cast<double>(float(a)))); }
inline MACO_HALF hcos(MACO_HALF a) { return MACO_HALF(std::cos(static_cast<double>(float(a)))); }
inline MACO_HALF htanh(MACO_HALF a) { return MACO_HALF(std::tanh(static_cast<double>(float(a)))); }
inline MACO_HALF htanh_approx(MACO_HALF a) { return htanh(a); }
inline MACO_HALF hsqrt(MACO_HALF a) { return MACO_HALF(std::sqrt(static_cast<float>(a))); }
inline MACO_HALF hrsqrt(MACO_HALF a) {
  return MACO_HALF(1.0 / std::sqrt(static_cast<double>(float(a))));
}
inline MACO_HALF hrcp(MACO_HALF a) { return MACO_HALF(1.0f / static_cast<float>(a)); }
inline MACO_HALF hrint(MACO_HALF a) { return MACO_HALF(std::nearbyint(static_cast<float>(a))); }
inline MACO_HALF hceil(MACO_HALF a) { return MACO_HALF(std::ceil(static_cast<float>(a))); }
inline MACO_HALF hfloor(MACO_HALF a) { return MACO_HALF(std::floor(static_cast<float>(a))); }
inline MACO_HALF htrunc(MACO_HALF a) { return MACO_HALF(std::trunc(static_cast<float>(a))); }

// ---- pairs ------------------------------------------------------------------

inline float __low2float(MACO_HALF2 a) { return a.x; }
inline float __high2float(MACO_HALF2 a) { return a.y; }
inline MACO_HALF2 __lowhigh2highlow(MACO_HALF2 a) { return MACO_HALF2(a.y, a.x); }

#define MACO_PAIRWISE_1(NAME, FUNCTION) \
  inline MACO_HALF2 NAME(MACO_HALF2 a) { return MACO_HALF2(FUNCTION(a.x), FUNCTION(a.y)); }
#define MACO_PAIRWISE_2(NAME, FUNCTION)                        \
  inline MACO_HALF2 NAME(MACO_HALF2 a, MACO_HALF2 b) {         \
    return MACO_HALF2(FUNCTION(a.x, b.x), FUNCTION(a.y, b.y)); \
  }
#define MACO_PAIRWISE_3(NAME, FUNCTION)                                  \
  inline MACO_HALF2 NAME(MACO_HALF2 a, MACO_HALF2 b, MACO_HALF2 c) {     \
    return MACO_HALF2(FUNCTION(a.x, b.x, c.x), FUNCTION(a.y, b.y, c.y)); \
  }

MACO_PAIRWISE_1(__hneg2, __hneg)
MACO_PAIRWISE_1(__habs2, __habs)
MACO_PAIRWISE_2(__hadd2, __hadd)
MACO_PAIRWISE_2(__hsub2, __hsub)
MACO_PAIRWISE_2(__hmul2, __hmul)
MACO_PAIRWISE_2(__h2div, __hdiv)
MACO_PAIRWISE_2(__hadd2_rn, __hadd)
MACO_PAIRWISE_2(__hsub2_rn, __hsub)
MACO_PAIRWISE_2(__hmul2_rn, __hmul)
MACO_PAIRWISE_2(__hadd2_sat, __hadd_sat)
MACO_PAIRWISE_2(__hsub2_sat, __hsub_sat)
MACO_PAIRWISE_2(__hmul2_sat, __hmul_sat)
MACO_PAIRWISE_2(__hmax2, __hmax)
MACO_PAIRWISE_2(__hmin2, __hmin)
MACO_PAIRWISE_2(__hmax2_nan, __hmax_nan)
MACO_PAIRWISE_2(__hmin2_nan, __hmin_nan)
MACO_PAIRWISE_3(__hfma2, __hfma)
MACO_PAIRWISE_3(__hfma2_sat, __hfma_sat)
MACO_PAIRWISE_3(__hfma2_relu, __hfma_relu)
MACO_PAIRWISE_1(h2exp, hexp)
MACO_PAIRWISE_1(h2exp2, hexp2)
MACO_PAIRWISE_1(h2exp10, hexp10)
MACO_PAIRWISE_1(h2log, hlog)
MACO_PAIRWISE_1(h2log2, hlog2)
MACO_PAIRWISE_1(h2log10, hlog10)
MACO_PAIRWISE_1(h2sin, hsin)
MACO_PAIRWISE_1(h2cos, hcos)
MACO_PAIRWISE_1(h2tanh, htanh)
MACO_PAIRWISE_1(h2tanh_approx, htanh_approx)
MACO_PAIRWISE_1(h2sqrt, hsqrt)
MACO_PAIRWISE_1(h2rsqrt, hrsqrt)
MACO_PAIRWISE_1(h2rcp, hrcp)
MACO_PAIRWISE_1(h2rint, hrint)
MACO_PAIRWISE_1(h2ceil, hceil)
MACO_PAIRWISE_1(h2floor, hfloor)
MACO_PAIRWISE_1(h2trunc, htrunc)

#undef MACO_PAIRWISE_1
#undef MACO_PAIRWISE_2
#undef MACO_PAIRWISE_3

// Complex: a * b + c, the low part real.
inline MACO_HALF2 __hcmadd(MACO_HALF2 a, MACO_HALF2 b, MACO_HALF2 c) {
  const MACO_HALF real = __hfma(a.x, b.x, c.x);
  const MACO_HALF imaginary = __hfma(a.x, b.y, c.y);
  return MACO_HALF2(__hfma(__hneg(a.y), b.y, real), __hfma(a.y, b.x, imaginary));
}

inline MACO_HALF2 operator+(const MACO_HALF2& a, const MACO_HALF2& b) { return __hadd2(a, b); }
inline MACO_HALF2 operator-(const MACO_HALF2& a, const MACO_HALF2& b) { return __hsub2(a, b); }
inline MACO_HALF2 operator*(const MACO_HALF2& a, const MACO_HALF2& b) { return __hmul2(a, b); }
inline MACO_HALF2 operator/(const MACO_HALF2& a, const MACO_HALF2& b) { return __h2div(a, b); }
inline MACO_HALF2& operator+=(MACO_HALF2& a, const MACO_HALF2& b) { return a = __hadd2(a, b); }
inline MACO_HALF2& operator-=(MACO_HALF2& a, const MACO_HALF2& b) { return a = __hsub2(a, b); }
inline MACO_HALF2& operator*=(MACO_HALF2& a, const MACO_HALF2& b) { return a = __hmul2(a, b); }
inline MACO_HALF2& operator/=(MACO_HALF2& a, const MACO_HALF2& b) { return a = __h2div(a, b); }
inline MACO_HALF2& operator++(MACO_HALF2& a) {
  return a = MACO_HALF2(__hadd(a.x, MACO_HALF(1.0f)), __hadd(a.y, MACO_HALF(1.0f)));
}
inline MACO_HALF2& operator--(MACO_HALF2& a) {
  return a = MACO_HALF2(__hsub(a.x, MACO_HALF(1.0f)), __hsub(a.y, MACO_HALF(1.0f)));
}
inline MACO_HALF2 operator++(MACO_HALF2& a, int) {
  const MACO_HALF2 before = a;
  ++a;
  return before;
}
inline MACO_HALF2 operator--(MACO_HALF2& a, int) {
  const MACO_HALF2 before = a;
  --a;
  return before;
}
inline MACO_HALF2 operator+(const MACO_HALF2& a) { return a; }
inline MACO_HALF2 operator-(const MACO_HALF2& a) { return __hneg2(a); }

// ---- comparisons ------------------------------------------------------------

// OP of numbers; with NaN false, or true in the form with u. Pairs: 1 and 0, both true, masks.
#define MACO_COMPARE(NAME, OP)                                                                    \
  inline bool __h##NAME(MACO_HALF a, MACO_HALF b) {                                               \
    const float x = a, y = b;                                                                     \
    return x == x && y == y && x OP y;                                                            \
  }                                                                                               \
  inline bool __h##NAME##u(MACO_HALF a, MACO_HALF b) {                                            \
    const float x = a, y = b;                                                                     \
    return x != x || y != y || x OP y;                                                            \
  }                                                                                               \
  inline MACO_HALF2 __h##NAME##2(MACO_HALF2 a, MACO_HALF2 b) {                                    \
    return MACO_HALF2(MACO_HALF(__h##NAME(a.x, b.x) ? 1.0f : 0.0f),                               \
                      MACO_HALF(__h##NAME(a.y, b.y) ? 1.0f : 0.0f));                              \
  }                                                                                               \
  inline MACO_HALF2 __h##NAME##u2(MACO_HALF2 a, MACO_HALF2 b) {                                   \
    return MACO_HALF2(MACO_HALF(__h##NAME##u(a.x, b.x) ? 1.0f : 0.0f),                            \
                      MACO_HALF(__h##NAME##u(a.y, b.y) ? 1.0f : 0.0f));                           \
  }                                                                                               \
  inline bool __hb##NAME##2(MACO_HALF2 a, MACO_HALF2 b) {                                         \
    return __h##NAME(a.x, b.x) && __h##NAME(a.y, b.y);                                            \
  }                                                                                               \
  inline bool __hb##NAME##u2(MACO_HALF2 a, MACO_HALF2 b) {                                        \
    return __h##NAME##u(a.x, b.x) && __h##NAME##u(a.y, b.y);                                      \
  }                                                                                               \
  inline unsigned __h##NAME##2_mask(MACO_HALF2 a, MACO_HALF2 b) {                                 \
    return (__h##NAME(a.x, b.x) ? 0xffffu : 0u) | (__h##NAME(a.y, b.y) ? 0xffff0000u : 0u);       \
  }                                                                                               \
  inline unsigned __h##NAME##u2_mask(MACO_HALF2 a, MACO_HALF2 b) {                                \
    return (__h##NAME##u(a.x, b.x) ? 0xffffu : 0u) | (__h##NAME##u(a.y, b.y) ? 0xffff0000u : 0u); \
  }

MACO_COMPARE(eq, ==)
MACO_COMPARE(ne, !=)
MACO_COMPARE(lt, <)
MACO_COMPARE(gt, >)
MACO_COMPARE(le, <=)
MACO_COMPARE(ge, >=)

#undef MACO_COMPARE

inline MACO_HALF2 __hisnan2(MACO_HALF2 a) {
  return MACO_HALF2(MACO_HALF(__hisnan(a.x) ? 1.0f : 0.0f), MACO_HALF(__hisnan(a.y) ? 1.0f : 0.0f));
}

// != is true with NaN, as in C++; the others are false.
inline bool operator==(const MACO_HALF& a, const MACO_HALF& b) { return __heq(a, b); }
inline bool operator!=(const MACO_HALF& a, const MACO_HALF& b) { return __hneu(a, b); }
inline bool operator<(const MACO_HALF& a, const MACO_HALF& b) { return __hlt(a, b); }
inline bool operator>(const MACO_HALF& a, const MACO_HALF& b) { return __hgt(a, b); }
inline bool operator<=(const MACO_HALF& a, const MACO_HALF& b) { return __hle(a, b); }
inline bool operator>=(const MACO_HALF& a, const MACO_HALF& b) { return __hge(a, b); }
inline bool operator==(const MACO_HALF2& a, const MACO_HALF2& b) { return __hbeq2(a, b); }
inline bool operator!=(const MACO_HALF2& a, const MACO_HALF2& b) { return __hbneu2(a, b); }
inline bool operator<(const MACO_HALF2& a, const MACO_HALF2& b) { return __hblt2(a, b); }
inline bool operator>(const MACO_HALF2& a, const MACO_HALF2& b) { return __hbgt2(a, b); }
inline bool operator<=(const MACO_HALF2& a, const MACO_HALF2& b) { return __hble2(a, b); }
inline bool operator>=(const MACO_HALF2& a, const MACO_HALF2& b) { return __hbge2(a, b); }
