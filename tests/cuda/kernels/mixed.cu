#include <cuda_bf16.h>

// GELU (tanh form) of the rows this rank has, with a bias that depends on the rank.
//
//   mixed_gelu<<<dim3(columns / 64, rows / 8), dim3(64, 2)>>>(...)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MIXED_FAST 1
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "needs an architecture with bf16"
#else
#define MIXED_FAST 0
#endif

static constexpr float kAlpha = 0.7978845608028654f;  // sqrt(2 / pi)
static constexpr float kBeta = 0.044715f;

template <typename T>
struct Convert;
template <>
struct Convert<__nv_bfloat16> {
  static __device__ float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
  static __device__ void store(__nv_bfloat16* p, float v) { *p = __float2bfloat16_rn(v); }
};
template <>
struct Convert<float> {
  static __device__ float load(const float* p) {
#if MIXED_FAST
    return __ldg(p);
#else
    return *p;
#endif
  }
  static __device__ void store(float* p, float v) { *p = v; }
};

template <typename In, typename Out>
__global__ void mixed_gelu(const In* __restrict__ in, Out* __restrict__ out, int rows, int columns,
                           int rank, int world) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const float bias = (rank + 1.0f) / world;
#pragma unroll 2
  for (int i = threadIdx.y; i < 8; i += blockDim.y) {
    const int r = blockIdx.y * 8 + i;
    if (r >= rows || c >= columns) continue;
    const float x = Convert<In>::load(&in[r * columns + c]) + bias;
    Convert<Out>::store(&out[r * columns + c],
                        0.5f * x * (1.0f + tanhf(kAlpha * (x + kBeta * x * x * x))));
  }
}
