#include <cuda_fp16.h>
struct Pair {
  float4 a, b;
};
__device__ void twice(float4& v) {
  v.x += v.x;
  v.y += v.y;
  v.z += v.z;
  v.w += v.w;
}
__global__ void k(const float* x, const __half* h, float* y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  // Only the addresses of what lies behind the block's part.
  const float4* end = &((const float4*)x)[64 * blockIdx.x + 64];
  const float4* from = &((const float4*)x)[2 * i];
  Pair p = {from[0], *(from + 1)};
  const float4& last = 2 * i + 2 < 64 * ((int)blockIdx.x + 1) ? from[2] : from[1];
  twice(p.a);
  twice(p.b);
  const __half2 two = *(const __half2*)&h[2 * i];
  p.b.w += end > from ? __low2float(two) : last.x;
  reinterpret_cast<Pair*>(y)[i] = p;
}
