#ifndef LAYER_NORM_DETAIL_MACROS_H_
#define LAYER_NORM_DETAIL_MACROS_H_

#define WARP 32
#define FULL_MASK 0xffffffffu
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define LANE (threadIdx.x & (WARP - 1))
#define WARP_OF_BLOCK (threadIdx.x / WARP)

#ifdef __CUDACC__
#define DEVICE_INLINE __device__ __forceinline__
#else
#define DEVICE_INLINE inline
#endif

#define FOR_EACH(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)

#endif  // LAYER_NORM_DETAIL_MACROS_H_
