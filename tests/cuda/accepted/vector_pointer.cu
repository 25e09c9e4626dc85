#include <cuda_fp16.h>

__global__ void k(const float4* x, __half2* y, int n) {
  const float4 v = x[blockIdx.x * n + threadIdx.x];
  y[2 * (blockIdx.x * n + threadIdx.x)] = __floats2half2_rn(v.x, v.y);
  y[2 * (blockIdx.x * n + threadIdx.x) + 1] = __floats2half2_rn(v.z, v.w);
}
