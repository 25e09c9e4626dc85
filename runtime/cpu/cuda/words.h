// words.h: the CUDA words of device code, for a host compiler.
//
// Included before the user's text, at global scope, after the interface of maco_cuda (which thread
// this is, barriers, warps) has been defined. Everything is inline and holds no state. All standard
// headers come first: after them, names of CUDA that the C library also has are macros.
//
// Not defined here: __shared__ (the including file says where shared memory lies), inline PTX,
// textures, surfaces, tensor cores, clusters and device-side launches. The preprocessor's
// conditions have been resolved before the text comes here.

#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <array>
#include <cfenv>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

// ---- qualifiers -------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline
// Empty, so that __attribute__((__noinline__)) in a header that is included later stays right.
#define __noinline__
// __inline__ and __restrict__ are words of g++ and clang++.

#include "vectors.h"

// ---- who runs ---------------------------------------------------------------

namespace maco_words {

inline uint3 to_uint3(maco_cuda::Index i) { return uint3{i.x, i.y, i.z}; }
inline uint3 thread_index() { return to_uint3(maco_cuda::thread_index()); }
inline uint3 block_index() { return to_uint3(maco_cuda::block_index()); }
inline dim3 block_extent() { return dim3(to_uint3(maco_cuda::block_extent())); }
inline dim3 grid_extent() { return dim3(to_uint3(maco_cuda::grid_extent())); }

template <class T>
struct Same {
  using type = T;
};
// A parameter of this type takes no part in deduction.
template <class T>
using NotDeduced = typename Same<T>::type;

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bits are kept");
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(To));
  return to;
}

}  // namespace maco_words

#define threadIdx (::maco_words::thread_index())
#define blockIdx (::maco_words::block_index())
#define blockDim (::maco_words::block_extent())
#define gridDim (::maco_words::grid_extent())
constexpr int warpSize = 32;

// ---- barriers, fences, time -------------------------------------------------

inline void __syncthreads() { maco_cuda::block_sync(); }
inline int __syncthreads_count(int value) { return maco_cuda::block_sync_count(value != 0); }
inline int __syncthreads_and(int value) { return maco_cuda::block_sync_and(value != 0); }
inline int __syncthreads_or(int value) { return maco_cuda::block_sync_or(value != 0); }

inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Time stands still, so that results don't depend on it.
#define clock maco_words_clock
inline clock_t clock() { return 0; }
inline long long clock64() { return 0; }
inline unsigned long long __globaltimer() { return 0; }
inline void __nanosleep(unsigned) {}

[[noreturn]] inline void __trap() { maco_cuda::stop(nullptr); }
inline void __brkpt() {}

// The C library's version would hold a lock when the block is given up.
#ifdef assert
#undef assert
#endif
[[noreturn]] inline void maco_words_assert(const char* file, int line, const char* function,
                                           const char* text) {
  char said[512];
  snprintf(said, sizeof said, "%s:%d: %s: block: [%u,%u,%u], assertion `%s` failed.\n", file, line,
           function, blockIdx.x, blockIdx.y, blockIdx.z, text);
  maco_cuda::stop(said);
}
#define assert(...)               \
  (static_cast<bool>(__VA_ARGS__) \
       ? static_cast<void>(0)     \
       : maco_words_assert(__FILE__, __LINE__, static_cast<const char*>(__func__), #__VA_ARGS__))

// ---- memory -----------------------------------------------------------------

// Loads and stores with a hint for the caches.
template <class T>
inline T __ldg(const T* from) {
  return *from;
}
template <class T>
inline T __ldca(const T* from) {
  return *from;
}
template <class T>
inline T __ldcg(const T* from) {
  return *from;
}
template <class T>
inline T __ldcs(const T* from) {
  return *from;
}
template <class T>
inline T __ldlu(const T* from) {
  return *from;
}
template <class T>
inline T __ldcv(const T* from) {
  return *from;
}
template <class T>
inline void __stwb(T* to, maco_words::NotDeduced<T> value) {
  *to = value;
}
template <class T>
inline void __stcg(T* to, maco_words::NotDeduced<T> value) {
  *to = value;
}
template <class T>
inline void __stcs(T* to, maco_words::NotDeduced<T> value) {
  *to = value;
}
template <class T>
inline void __stwt(T* to, maco_words::NotDeduced<T> value) {
  *to = value;
}

#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __assume(condition) ((void)0)

#include "atomics.h"
#include "constants.h"
#include "cuda_math.h"
#include "fp8.h"
#include "halves.h"
#include "integers.h"
#include "warps.h"
