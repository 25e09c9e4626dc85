__device__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i] * table[i % 4];
}
