__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  unsigned lane;
  asm("mov.u32 %0, %laneid;" : "=r"(lane));
  if (lane < n) y[i] = x[i] + lane;
}
