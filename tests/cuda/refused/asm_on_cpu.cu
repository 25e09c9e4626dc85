__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  float v = x[i];
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(v));
  y[i] = v;
}
