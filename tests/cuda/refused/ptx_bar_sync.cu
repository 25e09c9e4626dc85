__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
  asm volatile("bar.sync 0;" ::: "memory");
}
