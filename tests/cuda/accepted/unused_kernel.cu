#include <cooperative_groups.h>

#include <cstdio>

__device__ int counter;
__constant__ float weights[4];

__global__ void other(float* y, int n) {
  cooperative_groups::this_grid().sync();
  if (atomicAdd(&counter, 1) == n) printf("last %f\n", weights[0]);
  if (threadIdx.x < 16) asm volatile("bar.sync 0;");
}

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = 2.0f * x[i];
}
