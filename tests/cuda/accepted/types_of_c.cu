#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>

struct Pair {
  int32_t a;
  uint8_t b;
};
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  uint u = i;
  ushort s = 3;
  ulong l = 4;
  ssize_t z = -1;
  uintptr_t p = 5;
  int_fast32_t f = 6;
  int_least16_t e = INT16_C(7);
  uint64_t w = UINT64_C(0x100000000) + offsetof(Pair, b);
  const bool right = INT_MAX == 2147483647 && INT32_MIN < 0 && UINT8_MAX == 255 && CHAR_BIT == 8 &&
                     FLT_MAX > 1e38f && FLT_MIN < 1e-37f && DBL_EPSILON < 1e-15 &&
                     FLT_MANT_DIG == 24 && FLT_MAX_EXP == 128 && SIZE_MAX > UINT32_MAX &&
                     INTPTR_MAX > 0 && LLONG_MAX == INT64_MAX && std::isinf(INFINITY) &&
                     HUGE_VAL > DBL_MAX && NULL == nullptr && FLT_RADIX == 2;
  if (threadIdx.x < n)
    y[i] = right ? x[i] + u + s + l + z + p + f + e + (w >> 32) + float(M_PI) : 0.0f;
}
