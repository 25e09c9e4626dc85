// For tests/e2e/keys_test.py: every attribute of the op makes another kernel.

template <typename T, int kTimes>
__global__ void scale(const T* x, T* y, int n, float by) {
  const int i = blockIdx.x * n + threadIdx.x;
#ifdef TWICE
  by *= TWICE;
#endif
  if (threadIdx.x < n) y[i] = kTimes * by * x[i];
}

template <typename T, int kTimes>
__global__ void shift(const T* x, T* y, int n, float by) {
  const int i = blockIdx.x * n + threadIdx.x;
  if (threadIdx.x < n) y[i] = kTimes * by + x[i];
}
