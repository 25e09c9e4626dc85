__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  extern __shared__ float s[];
  s[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = s[31 - threadIdx.x];
}
