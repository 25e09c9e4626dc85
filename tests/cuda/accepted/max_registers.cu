#define LIMIT __maxnreg__(64)
__global__ void __maxnreg__(32) other(float* y) { y[threadIdx.x] = 1; }
__global__ void LIMIT k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = 2.0f * x[i];
}
