__global__ void k(const float* x, float* y) {
  extern __shared__ float s[];
  const int at = 229120 / 4 - 1 - threadIdx.x;
  s[at] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = s[229120 / 4 - 64 + threadIdx.x];
}
