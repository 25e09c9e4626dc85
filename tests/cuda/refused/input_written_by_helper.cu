__device__ float take(float* from) {
  const float v = *from;
  *from = 0.0f;
  return v;
}

__global__ void k(float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  y[i] = take(x + i);
}
