__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  unsigned d;
  asm("mov.u32 %0, %%ntid.x;" : "=r"(d));
  for (unsigned c = threadIdx.x; c < n; c += d) y[blockIdx.x * n + c] = x[blockIdx.x * n + c];
}
