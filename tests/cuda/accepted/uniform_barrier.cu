__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  __shared__ int again;
  s[threadIdx.x] = x[i];
  if (threadIdx.x == 0) again = blockIdx.x % 3;
  if (n > 16) __syncthreads();
  const int turns = again;
  for (int t = 0; t < turns; ++t) {
    const float v = s[(threadIdx.x + 1) % 32];
    __syncthreads();
    s[threadIdx.x] = v;
    __syncthreads();
  }
  if (__syncthreads_or(x[i] > 1.0f)) s[threadIdx.x] += 1.0f;
  y[i] = s[threadIdx.x];
}
