// machine.cuh: how functions and kernels are declared, integers, and what an architecture has. The
// headers of this folder are what the machine provides, on a GPU; runtime/cpu/intrinsics provides
// the same for a host compiler. Nothing else in kernel.cu differs between the two.

#ifndef MACO_CPU

#define MACO_FN __device__ __forceinline__
// A kernel whose roles divide registers calls no functions: if both roles call one, ptxas refuses
// (C7600) or ignores the division (C7507).
#ifdef MACO_DIVIDES_REGISTERS
#define MACO_OP __device__ __forceinline__
#else
#define MACO_OP __device__ __noinline__
#endif
#define MACO_TABLE __device__
#define MACO_KERNEL extern "C" __global__ void __launch_bounds__(maco::kThreads, 1)
#define MACO_PAIRS __cluster_dims__(2, 1, 1)  // CTAs 2k and 2k + 1 are a pair
#define MACO_PARAM const __grid_constant__
#define MACO_UNROLL _Pragma("unroll")
#define MACO_ROLLED _Pragma("unroll 1")

namespace maco {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define MACO_HAS_ASYNC_COPY 1
#else
#define MACO_HAS_ASYNC_COPY 0
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#define MACO_HAS_F8 1
#else
#define MACO_HAS_F8 0
#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define MACO_HAS_BOXES 1
#else
#define MACO_HAS_BOXES 0
#endif
struct TensorMap;

}  // namespace maco

#endif  // MACO_CPU
