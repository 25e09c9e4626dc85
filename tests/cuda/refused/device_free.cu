#include <cstdlib>

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  void* nothing = nullptr;
  free(nothing);
  y[i] = x[i];
}
