__device__ void put(float* s, float v) {
  s[threadIdx.x] = v;
  __syncthreads();
}

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  __shared__ float s[32];
  const bool lower = threadIdx.x < 16;
  if (lower) put(s, x[i]);
  y[i] = lower ? s[15 - threadIdx.x] : x[i];
}
