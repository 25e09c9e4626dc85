__managed__ float offset = 1.0f;

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i] + offset;
}
