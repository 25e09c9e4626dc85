#ifndef MACRO_HEADER_H
#define MACRO_HEADER_H
#define KERNEL_ATTR __global__ void __launch_bounds__(64)
#define ALL 0xffffffff
#define SHARED_BUF(name) __shared__ float name[64]
#define RETURN_UNLESS(c) \
  if (!(c)) {            \
    return;              \
  }
#define DEVICE_FN(name, e) \
  __device__ __forceinline__ float name(float v) { return e; }
#define MAKE_KERNEL(name, T, ...)                        \
  extern "C" KERNEL_ATTR name(const T* x, T* y, int n) { \
    const int i = blockIdx.x * 64 + threadIdx.x;         \
    if (i < n) y[i] = x[i] __VA_ARGS__;                  \
  }
MAKE_KERNEL(hk, float, *2.0f)
DEVICE_FN(twice_of, v + v)
static inline KERNEL_ATTR hk2(const float* x, float* y, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  RETURN_UNLESS(i < n);
  SHARED_BUF(buf);
  buf[threadIdx.x] = twice_of(x[i]);
  __syncthreads();
  y[i] = buf[63 - threadIdx.x] + __shfl_xor_sync(ALL, x[i], 1);
}
#endif
