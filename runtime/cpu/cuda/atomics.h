// atomics.h: atomic functions on host memory, relaxed as CUDA's are. Included by words.h.

#pragma once

#include "halves.h"

namespace maco_words {

/// Replaces *p by next(*p) and returns what was there. U is an unsigned type of T's size.
template <class U, class T, class Next>
inline T atomic_update(T* p, Next next) {
  static_assert(sizeof(U) == sizeof(T), "the bits of a value");
  U* bits = reinterpret_cast<U*>(p);
  U old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(bits, &old, bits_as<U>(next(bits_as<T>(old))), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return bits_as<T>(old);
}

}  // namespace maco_words

// Each function for the calling thread's block, device and system: the same on a host.
#define MACO_ATOMIC(T, NAME, PARAMETER, ...)                     \
  inline T atomic##NAME(T* p, PARAMETER) { __VA_ARGS__ }         \
  inline T atomic##NAME##_block(T* p, PARAMETER) { __VA_ARGS__ } \
  inline T atomic##NAME##_system(T* p, PARAMETER) { __VA_ARGS__ }

#define MACO_ATOMIC_INTEGER(T) \
  MACO_ATOMIC(T, Add, T value, return __atomic_fetch_add(p, value, __ATOMIC_RELAXED);)
MACO_ATOMIC_INTEGER(int)
MACO_ATOMIC_INTEGER(unsigned)
MACO_ATOMIC_INTEGER(unsigned long long)
#undef MACO_ATOMIC_INTEGER

MACO_ATOMIC(int, Sub, int value, return __atomic_fetch_sub(p, value, __ATOMIC_RELAXED);)
MACO_ATOMIC(unsigned, Sub, unsigned value, return __atomic_fetch_sub(p, value, __ATOMIC_RELAXED);)

#define MACO_ATOMIC_BITS(T)                                                            \
  MACO_ATOMIC(T, And, T value, return __atomic_fetch_and(p, value, __ATOMIC_RELAXED);) \
  MACO_ATOMIC(T, Or, T value, return __atomic_fetch_or(p, value, __ATOMIC_RELAXED);)   \
  MACO_ATOMIC(T, Xor, T value, return __atomic_fetch_xor(p, value, __ATOMIC_RELAXED);)
#define MACO_ATOMIC_ORDER(T, U)                                                    \
  MACO_ATOMIC(T, Min, T value, return maco_words::atomic_update<U>(p, [=](T old) { \
                return value < old ? value : old;                                  \
              });)                                                                 \
  MACO_ATOMIC(T, Max, T value, return maco_words::atomic_update<U>(p, [=](T old) { \
                return value > old ? value : old;                                  \
              });)
MACO_ATOMIC_BITS(int)
MACO_ATOMIC_BITS(unsigned)
MACO_ATOMIC_BITS(long long)
MACO_ATOMIC_BITS(unsigned long long)
MACO_ATOMIC_ORDER(int, unsigned)
MACO_ATOMIC_ORDER(unsigned, unsigned)
MACO_ATOMIC_ORDER(long long, unsigned long long)
MACO_ATOMIC_ORDER(unsigned long long, unsigned long long)
#undef MACO_ATOMIC_BITS
#undef MACO_ATOMIC_ORDER

MACO_ATOMIC(int, Exch, int value, return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);)
MACO_ATOMIC(unsigned, Exch, unsigned value, return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);)
MACO_ATOMIC(unsigned long long, Exch, unsigned long long value,
            return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);)
MACO_ATOMIC(float, Exch, float value,
            return maco_words::atomic_update<unsigned>(p, [=](float) { return value; });)

// Counts up to `last` and then from 0; counts down to 0 and then from `last`.
MACO_ATOMIC(unsigned, Inc, unsigned last,
            return maco_words::atomic_update<unsigned>(p, [=](unsigned old) {
              return old >= last ? 0u : old + 1u;
            });)
MACO_ATOMIC(unsigned, Dec, unsigned last,
            return maco_words::atomic_update<unsigned>(p, [=](unsigned old) {
              return old == 0 || old > last ? last : old - 1u;
            });)

#define MACO_ATOMIC_FLOAT(T, U) \
  MACO_ATOMIC(T, Add, T value,  \
              return maco_words::atomic_update<U>(p, [=](T old) -> T { return old + value; });)
MACO_ATOMIC_FLOAT(float, unsigned)
MACO_ATOMIC_FLOAT(double, unsigned long long)
MACO_ATOMIC_FLOAT(__half, unsigned short)
MACO_ATOMIC_FLOAT(__half2, unsigned)
MACO_ATOMIC_FLOAT(__nv_bfloat16, unsigned short)
MACO_ATOMIC_FLOAT(__nv_bfloat162, unsigned)
#undef MACO_ATOMIC_FLOAT

// Each member by itself, as on a GPU.
MACO_ATOMIC(float2, Add, float2 v,
            return make_float2(atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y));)
MACO_ATOMIC(float4, Add, float4 v,
            return make_float4(atomicAdd(&p->x, v.x), atomicAdd(&p->y, v.y), atomicAdd(&p->z, v.z),
                               atomicAdd(&p->w, v.w));)

#undef MACO_ATOMIC

#define MACO_ATOMIC_CAS(T)                                                                       \
  inline T atomicCAS(T* p, T expected, T value) {                                                \
    __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return expected;                                                                             \
  }                                                                                              \
  inline T atomicCAS_block(T* p, T expected, T value) { return atomicCAS(p, expected, value); }  \
  inline T atomicCAS_system(T* p, T expected, T value) { return atomicCAS(p, expected, value); }
MACO_ATOMIC_CAS(int)
MACO_ATOMIC_CAS(unsigned)
MACO_ATOMIC_CAS(unsigned long long)
MACO_ATOMIC_CAS(unsigned short)
#undef MACO_ATOMIC_CAS
