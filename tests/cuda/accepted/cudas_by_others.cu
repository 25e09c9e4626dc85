#include <cublas_v2.h>
typedef __nv_bfloat16 floatX;
__device__ floatX half_of(floatX v) { return (floatX)((float)v * 0.5f); }
__global__ void k(const floatX* x, floatX* y, int dim3) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = (floatX)((float)half_of(x[i]) + dim3);
}
