// Arithmetic, by the C library; conversions are for numbers.cuh to do by bits.

// Including <cmath> would take a fifth of a small kernel's compile time.
extern "C" void sincosf(float x, float* sine, float* cosine) noexcept;
// Under other names: if compilers see the sine and cosine of one number, they merge the two calls.
extern "C" float maco_sinf(float x) noexcept __asm__("sinf");
extern "C" float maco_cosf(float x) noexcept __asm__("cosf");

namespace maco {

MACO_FN float fexp(float x) { return __builtin_expf(x); }
MACO_FN float flog(float x) { return __builtin_logf(x); }
MACO_FN float fsin(float x) { return ::maco_sinf(x); }
MACO_FN float fcos(float x) { return ::maco_cosf(x); }
MACO_FN float ferf(float x) { return __builtin_erff(x); }
MACO_FN float fpow(float a, float b) { return __builtin_powf(a, b); }
MACO_FN float fexp2(float x) { return __builtin_exp2f(x); }
MACO_FN float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
MACO_FN float ftanh(float x) { return __builtin_tanhf(x); }
// Both come from one function: compilers merge two calls where they see both, with other bits.
MACO_FN void fsincospi(float x, float& sine, float& cosine) {
  ::sincosf(x * 3.14159265f, &sine, &cosine);
}
MACO_FN float fnear_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
// Kernels are compiled with -ffp-contract=off.
MACO_FN float fadd(float a, float b) { return a + b; }
MACO_FN float fsub(float a, float b) { return a - b; }
MACO_FN float fmul(float a, float b) { return a * b; }
MACO_FN float fdiv(float a, float b) { return a / b; }
MACO_FN float fsqrt(float x) { return __builtin_sqrtf(x); }
MACO_FN float finverse(float b) { return 1.0f / b; }
MACO_FN float ftop(float a, float b) { return a != a ? a : (a > b ? a : b); }
MACO_FN float warp_top(float value) { return value; }
MACO_FN float fratio(float a, float b) { return a / b; }
MACO_FN float ffma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// For registers of a GPU: only declared.
void forget(float& x);
void settle(u32& x);
MACO_FN u32 bits_of(float x) {
  u32 r;
  std::memcpy(&r, &x, 4);
  return r;
}
MACO_FN float float_of(u32 x) {
  float r;
  std::memcpy(&r, &x, 4);
  return r;
}

constexpr bool kHasF16 = false;
constexpr bool kHasBf16 = false;
constexpr bool kHasF8 = false;
MACO_FN float f16_to_float(u16) { return 0.0f; }
MACO_FN u16 float_to_f16(float) { return 0; }
MACO_FN u16 float_to_bf16(float) { return 0; }
MACO_FN float rounded_to_bf16(float) { return 0; }
MACO_FN u8 float_to_e4m3(float) { return 0; }
MACO_FN u8 float_to_e5m2(float) { return 0; }

}  // namespace maco
