__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  s[threadIdx.x] = x[i];
  if (threadIdx.x < 16) __syncthreads();
  y[i] = s[31 - threadIdx.x];
}
