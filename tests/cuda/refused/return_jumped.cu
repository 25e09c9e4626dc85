__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  float v = x[i];
  if (v > 0.0f) goto sum;
  if (v < -1.0f) return;
sum:
  y[i] = v + __shfl_xor_sync(~0u, v, 1);
}
