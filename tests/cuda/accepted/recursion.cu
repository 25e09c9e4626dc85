__device__ float power(float v, int n) { return n == 0 ? 1.0f : v * power(v, n - 1); }

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = power(x[i], 3);
}
