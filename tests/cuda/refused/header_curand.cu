#include <curand_kernel.h>

__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * n + threadIdx.x;
  curandStatePhilox4_32_10_t state;
  curand_init(42, i, 0, &state);
  if (threadIdx.x < n) y[i] = x[i] + curand_uniform(&state);
}
