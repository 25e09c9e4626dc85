__global__ void __cluster_dims__(2, 1, 1) k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = x[i];
}
