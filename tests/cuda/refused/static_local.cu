__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  static int calls = 0;
  if (threadIdx.x == 0) calls = calls + 1;
  y[i] = x[i];
}
