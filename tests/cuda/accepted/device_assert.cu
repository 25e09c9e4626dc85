#include <cassert>

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  assert(threadIdx.x < 32);
  y[i] = 2.0f * x[i];
}
