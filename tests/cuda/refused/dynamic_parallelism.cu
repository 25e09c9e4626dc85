__global__ void child(float* y) { y[threadIdx.x] += 1.0f; }

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
  if (threadIdx.x == 0) child<<<1, 32>>>(y + i);
}
