#include <scaled.h>

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = scaled(x[i]) + ADDED + NAMED + SUM + TEXT[1] - 'b';
}
