template <class T>
__device__ T twice(T x) {
  return x + x;
}
__global__ void scale(const float* __restrict__ x, float* y, int n, float by) {
  __shared__ float held[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) held[threadIdx.x] = twice(x[i]);
  __syncthreads();
  if (i < n) y[i] = held[threadIdx.x] * by;
}
