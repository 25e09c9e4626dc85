__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
  __syncwarp();
  y[i] += 1;
  float4 v = *reinterpret_cast<float4*>(&y[i & ~3]);
  atomicAdd(&y[i], v.x - v.x);
}
