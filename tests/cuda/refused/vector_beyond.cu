__global__ void k(const float* x, float* y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  const float4 v = reinterpret_cast<const float4*>(x)[i];
  *(float4*)&y[4 * i + 4] = v;
}
