#include <stdio.h>
#include <cuda/barrier>
// Both have an array of this name; the other needs what doesn't come along.
__global__ void other(float* y) {
  extern __shared__ float a[];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  a[0] = 1;
  printf("%f\n", a[0]);
  y[0] = a[0];
}
__device__ float once(float v);
__global__ void another(float* y) {
  extern __device__ float once(float v);
  y[0] = once(y[1]);
}
__device__ float once(float v) { return v + 1; }
__global__ void k(const float* x, float* y) {
  extern __shared__ float a[];
  extern __device__ float once(float v);
  int i = threadIdx.x;
  a[i] = x[i];
  __syncthreads();
  y[i] = once(a[63 - i]);
}
