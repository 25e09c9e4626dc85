__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  if (threadIdx.x >= n) return;
  s[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = s[n - 1 - threadIdx.x];
}
