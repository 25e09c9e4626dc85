#include <math.h>
constexpr float kLowest = -INFINITY;
constexpr double kMost = HUGE_VAL;
__global__ void k(const float* x, float* y) {
  constexpr float most = INFINITY;
  const float v = x[threadIdx.x];
  y[threadIdx.x] = fmaxf(v, kLowest) + (v < most ? 1.f : NAN) + (v < kMost ? 1.f : 0.f);
}
