__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
  if (threadIdx.x > 16) asm volatile("exit;");
}
