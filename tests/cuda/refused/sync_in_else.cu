__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  const int lane = threadIdx.x % 32;
  const bool even = lane % 2 == 0;
  s[lane] = x[i];
  if (even) {
    y[i] = s[lane];
  } else {
    __syncthreads();
    y[i] = s[lane - 1];
  }
}
