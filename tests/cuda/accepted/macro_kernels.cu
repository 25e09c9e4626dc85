#define KERNEL extern "C" __global__ void
#define EXPORT extern "C"
#define LEAVE_BEHIND(n) \
  if (!(i < (n))) return
#define ELEMENTWISE(name, op)                                                   \
  __global__ void __launch_bounds__(64) name(const float* x, float* y, int n) { \
    const int i = blockIdx.x * 64 + threadIdx.x;                                \
    __shared__ float row[64];                                                   \
    if (i >= n) return;                                                         \
    row[threadIdx.x] = x[i];                                                    \
    __syncthreads();                                                            \
    y[i] = row[63 - threadIdx.x] op __shfl_xor_sync(~0u, x[i], 1);              \
  }
KERNEL k1(const float* x, float* y) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[i] + 1.0f;
}
EXPORT __global__ void k2(const float* x, float* y, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  LEAVE_BEHIND(n);
  y[i] = __shfl_xor_sync(~0u, x[i], 2) + 2.0f;
}
ELEMENTWISE(k3, *)
ELEMENTWISE(k4, +)
