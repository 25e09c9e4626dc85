template <class T>
__device__ auto block_last(T v) {
  __shared__ T part[64];
  part[threadIdx.x] = v;
  __syncthreads();
  return part[63 - threadIdx.x];
}
#define SHARED __shared__
#define SHARED_FLOAT __shared__ float
__global__ void k(const float* x, float* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  SHARED float a[64];
  SHARED_FLOAT b[64];
  a[threadIdx.x] = x[i];
  b[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = block_last(a[63 - threadIdx.x]) + block_last((int)b[threadIdx.x]);
}
