__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
  asm volatile("barrier.sync.aligned 1, %0;" ::"r"(32) : "memory");
}
