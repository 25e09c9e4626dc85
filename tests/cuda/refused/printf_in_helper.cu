#include <stdio.h>

template <class T>
__device__ T traced(T v) {
  if (v > T(100)) printf("large\n");
  return v;
}

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = traced(x[i]);
}
