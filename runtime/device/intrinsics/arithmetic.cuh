// arithmetic.cuh: arithmetic, correctly rounded or within 2.2 ulp (fpow 4), nothing faster; and
// conversions in hardware.

#ifndef MACO_CPU

namespace maco {

MACO_FN float fexp(float x) { return expf(x); }
MACO_FN float flog(float x) { return logf(x); }
MACO_FN float fsin(float x) { return sinf(x); }
MACO_FN float fcos(float x) { return cosf(x); }
MACO_FN float ferf(float x) { return erff(x); }
MACO_FN float fpow(float a, float b) { return powf(a, b); }
// 2 to the x; results below the least normal number become 0.
MACO_FN float fexp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// The larger one; of a number and NaN the number.
MACO_FN float fmax(float a, float b) { return fmaxf(a, b); }
MACO_FN float ftanh(float x) { return tanhf(x); }
// Sine and cosine of pi x.
MACO_FN void fsincospi(float x, float& sine, float& cosine) { sincospif(x, &sine, &cosine); }
// Ops compute with these functions, never with operators. A compiler may contract the product and
// the sum of operators, even those of two fused ops, into one operation that rounds once (nvcc does
// by default); the bits would then depend on flags and on fusing.
MACO_FN float fadd(float a, float b) { return __fadd_rn(a, b); }
MACO_FN float fsub(float a, float b) { return __fsub_rn(a, b); }
MACO_FN float fmul(float a, float b) { return __fmul_rn(a, b); }
MACO_FN float fdiv(float a, float b) { return __fdiv_rn(a, b); }
MACO_FN float fsqrt(float x) { return __fsqrt_rn(x); }
// 1 / b, rounded once as fdiv does.
MACO_FN float finverse(float b) { return __frcp_rn(b); }
// The larger of two; NaN if either is NaN. Of two zeros it may be either.
MACO_FN float ftop(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float top;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(top) : "f"(a), "f"(b));
  return top;
#else
  return a != a ? a : (a > b ? a : b);
#endif
}
// The largest value of the warp's lanes, as by ftop.
MACO_FN float warp_top(float value) {
#if __CUDA_ARCH__ >= 800
  // Compared as integers in the order of floats; a NaN, which ftop makes positive, is above all.
  int order = __float_as_int(ftop(value, value));
  order ^= (order >> 31) & 0x7fffffff;
  order = __reduce_max_sync(0xffffffffu, order);
  return __int_as_float(order ^ ((order >> 31) & 0x7fffffff));
#else
  for (int mask = 16; mask > 0; mask /= 2) value = ftop(value, shuffle_xor(value, mask));
  return value;
#endif
}
// a / b for b in [1, 2^100], within 1.5 ulp: a product with an estimate of 1 / b, which is within 1
// ulp.
MACO_FN float fratio(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  return fmul(a, r);
}
// 1 / sqrt(x) within 2.2 ulp: the estimate's relative error is at most 2^-22.9.
MACO_FN float fnear_rsqrt(float x) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
MACO_FN float ffma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
// Declares x's old value dead. It is an instruction because ptxas takes a variable that some branch
// doesn't set as live from the kernel's begin, and keeps a register for it.
MACO_FN void forget(float& x) { asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x)); }
// Makes the compiler compute x here, not where it is first needed.
MACO_FN void settle(u32& x) { asm volatile("" : "+r"(x)); }
MACO_FN u32 bits_of(float x) { return __float_as_uint(x); }
MACO_FN float float_of(u32 x) { return __uint_as_float(x); }

// ---- conversions in hardware; numbers.cuh has the others, by bits ------------

constexpr bool kHasF16 = true;
constexpr bool kHasBf16 = MACO_HAS_ASYNC_COPY;
constexpr bool kHasF8 = MACO_HAS_F8;

MACO_FN float f16_to_float(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
MACO_FN u16 float_to_f16(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
MACO_FN u16 float_to_bf16(float x) {
  u16 r = 0;
#if MACO_HAS_ASYNC_COPY
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
#endif
  return r;
}
// And back. It converts a zero beside it: ptxas gives a lone conversion to the unit for
// exponentials, which takes four times as long.
MACO_FN float rounded_to_bf16(float x) {
  u32 r = 0;
#if MACO_HAS_ASYNC_COPY
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(0.0f));
#endif
  return float_of(r);
}
MACO_FN u8 float_to_e4m3(float x) {
  u16 r = 0;
#if MACO_HAS_F8
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
#endif
  return (u8)r;
}
MACO_FN u8 float_to_e5m2(float x) {
  u16 r = 0;
#if MACO_HAS_F8
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
#endif
  return (u8)r;
}

}  // namespace maco

#endif  // MACO_CPU
