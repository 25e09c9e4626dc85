#include <cuda_fp16.h>
struct Pair {
  __half2 a, b;
};
__global__ void k(const __half* x, __half* y) {
  const Pair p = ((const Pair*)x)[blockIdx.x * 32 + threadIdx.x + 32];
  ((Pair*)y)[blockIdx.x * 32 + threadIdx.x] = p;
}
