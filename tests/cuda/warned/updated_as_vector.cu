__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x % 4) return;
  float4 v = *reinterpret_cast<float4*>(&y[i]);
  v.x += x[i];
  *reinterpret_cast<float4*>(&y[i]) = v;
}
