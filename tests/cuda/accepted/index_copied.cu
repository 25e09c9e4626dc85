template <class T>
__device__ int x_of(T index) {
  return index.x;
}
__global__ void k(const float* x, float* y, int n) {
  const auto block = blockIdx;
  const auto thread = threadIdx;
  dim3 extent = blockDim;
  const int i = block.x * n + thread.x;
  assert(i < x_of(gridDim) * n);
  if (x_of(threadIdx) < extent.x) y[i] = x[i] * max(2, n);
}
