template <class T, class Op>
__device__ T block_reduce(T v, Op op) {
  __shared__ T part[64];
  part[threadIdx.x] = v;
  __syncthreads();
  for (int n = 32; n > 0; n /= 2) {
    if (threadIdx.x < n) part[threadIdx.x] = op(part[threadIdx.x], part[threadIdx.x + n]);
    __syncthreads();
  }
  const T all = part[0];
  return all;
}
template <class T>
__global__ void k(const T* x, T* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  const T most = block_reduce(x[i], [](T a, T b) { return a > b ? a : b; });
  const T sum = block_reduce(expf(x[i] - most), [](T a, T b) { return a + b; });
  y[i] = expf(x[i] - most) / sum;
}
