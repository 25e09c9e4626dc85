__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  unsigned t;
  asm("mov.u32 %0, %%tid.x;" : "=r"(t));
  y[blockIdx.x * n + t] = x[i];
}
