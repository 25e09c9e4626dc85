__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[100000];
  s[threadIdx.x * 3000] = x[i];
  __syncthreads();
  y[i] = s[(31 - threadIdx.x) * 3000];
}
