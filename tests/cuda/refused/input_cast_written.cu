__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  const_cast<float*>(x)[i] = 1.0f;
  y[i] = 2.0f;
}
