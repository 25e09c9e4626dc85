__global__ void k(float* x, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  x[i] *= 2.0f;
}
