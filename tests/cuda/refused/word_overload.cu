__device__ float2 __shfl_xor_sync(unsigned m, float2 v, int o) {
  return make_float2(__shfl_xor_sync(m, v.x, o), __shfl_xor_sync(m, v.y, o));
}
__global__ void k(const float* x, float* y) {
  y[threadIdx.x] = __shfl_xor_sync(~0u, make_float2(x[threadIdx.x], 1.f), 1).x;
}
