__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  s[threadIdx.x] = x[i];
  for (int d = 0; d < threadIdx.x; ++d) {
    __syncthreads();
  }
  y[i] = s[threadIdx.x];
}
