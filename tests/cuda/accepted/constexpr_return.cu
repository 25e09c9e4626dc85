template <class T, bool kEarly>
__global__ void k(const T* x, T* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if constexpr (kEarly) {
    y[i] = x[i];
    return;
  } else {
    y[i] = __shfl_xor_sync(~0u, x[i], 1);
  }
}
template <class T, bool kEarly>
__global__ void k2(const T* x, T* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if constexpr (!kEarly) {
    y[i] = x[i];
    return;
  }
  if constexpr (kEarly) {
    if (i < 0) return;
  }
  y[i] = __shfl_xor_sync(~0u, x[i], 1);
}
