#include <cuda_fp8.h>
#include <stdint.h>

// Rows of f32 to f8e4m3: each row has a scale, its largest absolute value over the largest number
// of the type.

namespace quant {

template <class Fp8>
struct Limits;
template <>
struct Limits<__nv_fp8_e4m3> {
  static constexpr float kMax = 448.f;
};
template <>
struct Limits<__nv_fp8_e5m2> {
  static constexpr float kMax = 57344.f;
};

__device__ __forceinline__ float warpMax(float v) {
#pragma unroll
  for (int mask = 16; mask; mask >>= 1) v = fmaxf(v, __shfl_xor_sync(UINT32_MAX, v, mask));
  return v;
}

template <class Fp8>
__global__ void perRow(const float* __restrict__ x, Fp8* __restrict__ q, float* __restrict__ scales,
                       const int columns) {
  __shared__ float warpLargest[8];
  __shared__ float scale;
  x += size_t(blockIdx.x) * columns;
  q += size_t(blockIdx.x) * columns;

  float largest = 0.f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) largest = fmaxf(largest, fabsf(x[c]));
  largest = warpMax(largest);
  if ((threadIdx.x & 31) == 0) warpLargest[threadIdx.x >> 5] = largest;
  __syncthreads();
  if (threadIdx.x < 32) {
    largest = warpMax(threadIdx.x < blockDim.x / 32 ? warpLargest[threadIdx.x] : 0.f);
    if (threadIdx.x == 0) {
      scale = largest > 0.f ? largest / Limits<Fp8>::kMax : 1.f;
      scales[blockIdx.x] = scale;
    }
  }
  __syncthreads();

  const float inverse = 1.f / scale;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) q[c] = Fp8(x[c] * inverse);
}

template <class Fp8>
__global__ void restore(const Fp8* q, const float* scales, float* x, int columns) {
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    x[blockIdx.x * columns + c] =
        static_cast<float>(q[blockIdx.x * columns + c]) * scales[blockIdx.x];
}

}  // namespace quant
