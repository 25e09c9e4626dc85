#include <cstdlib>

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  float* p = static_cast<float*>(malloc(sizeof(float)));
  *p = x[i];
  y[i] = *p;
}
