__global__ void k(const long long* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = 2.0f * x[i];
}
