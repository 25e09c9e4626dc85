__device__ void store(float2& to, const float2& from) { to = from; }
__global__ void k(const float2* x, float2* y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  store(y[i ^ 32], x[i]);
}
