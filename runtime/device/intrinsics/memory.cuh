// memory.cuh: accesses to global memory, and to the CTA's shared memory.

#ifndef MACO_CPU

namespace maco {

// All accesses of ops to global memory go through these functions.
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};
template <class T>
MACO_FN T gload(const T* p) {
  return *p;
}
template <class T>
MACO_FN void gstore(T* p, T v) {
  *p = v;
}
template <int N, class T>
MACO_FN Vec<T, N> gload_vec(const T* p) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  return *(const Vec<T, N>*)p;
}
template <int N, class T>
MACO_FN void gstore_vec(T* p, Vec<T, N> v) {
  static_assert(sizeof(Vec<T, N>) <= 16, "a vector is at most 16 bytes");
  // By one instruction: the compiler stores members one by one, even through a vector type. (NVRTC
  // lacks the host headers' memcpy; a union works.)
  union Words {
    Vec<T, N> v;
    u32 w[sizeof(Vec<T, N>) < 4 ? 1 : sizeof(Vec<T, N>) / 4];
    MACO_FN Words(Vec<T, N> x) : v(x) {}
  } u(v);
  if constexpr (sizeof(v) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(u.w[0]), "r"(u.w[1]),
                 "r"(u.w[2]), "r"(u.w[3])
                 : "memory");
  } else if constexpr (sizeof(v) == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(u.w[0]), "r"(u.w[1]) : "memory");
  } else if constexpr (sizeof(v) == 4) {
    *(u32*)p = u.w[0];
  } else {
    *(Vec<T, N>*)p = v;
  }
}
// A store to a peer's slot: plain, ordered by the release of the signal that follows.
template <class T>
MACO_FN void peer_store(T* p, T v) {
  *p = v;
}
template <int N, class T>
MACO_FN void peer_store_vec(T* p, Vec<T, N> v) {
  gstore_vec<N>(p, v);
}
// Brings the line at p into the cache that all SMs share; a hint.
MACO_FN void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// Likewise for a line of a table, into the SM's own cache.
MACO_FN void prefetch_near(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }
// A row of a constant table.
template <class T>
MACO_FN T table_load(const T* p) {
  static_assert(sizeof(T) == 16 || sizeof(T) == 8 || sizeof(T) == 4,
                "rows of tables are 4, 8 or 16 bytes");
  union {
    u32 w[sizeof(T) / 4];
    T row;
  } u;
  if constexpr (sizeof(T) == 16) {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(u.w[0]), "=r"(u.w[1]), "=r"(u.w[2]), "=r"(u.w[3])
        : "l"(p));
  } else if constexpr (sizeof(T) == 8) {
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(u.w[0]), "=r"(u.w[1]) : "l"(p));
  } else {
    asm("ld.global.nc.u32 %0, [%1];" : "=r"(u.w[0]) : "l"(p));
  }
  return u.row;
}

// The same bits as another type of the same size.
template <class To, class From>
MACO_FN To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "");
  union {
    From f;
    To t;
  } u = {from};
  return u.t;
}

// What is computed from a loaded value is computed behind this. The compiler would do it right
// behind the load, and everything after it would wait for the load.
template <class T>
MACO_FN void used_from_here(T& value) {
  static_assert(sizeof(T) % 4 == 0 || sizeof(T) <= 2, "registers");
  if constexpr (sizeof(T) == 1) {
    u16 word = bits_as<u8>(value);
    asm volatile("" : "+h"(word));
    value = bits_as<T>((u8)word);
  } else if constexpr (sizeof(T) == 2) {
    auto word = bits_as<u16>(value);
    asm volatile("" : "+h"(word));
    value = bits_as<T>(word);
  } else {
    auto words = bits_as<Vec<u32, (int)sizeof(T) / 4>>(value);
    MACO_UNROLL
    for (u32& word : words.v) asm volatile("" : "+r"(word));
    value = bits_as<T>(words);
  }
}

// ---- shared memory ----------------------------------------------------------

MACO_FN u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
// Reads 16 bytes of shared memory, aligned to 16.
MACO_FN Vec<u32, 4> shared_load16(const void* p) {
  Vec<u32, 4> v;
  u32 address = shared_address(p);
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.v[0]), "=r"(v.v[1]), "=r"(v.v[2]), "=r"(v.v[3])
               : "r"(address));
  return v;
}
// Writes two floats to shared memory, aligned to 8 bytes.
MACO_FN void shared_store8(float* p, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared_address(p)), "f"(first), "f"(second)
               : "memory");
}

}  // namespace maco

#endif  // MACO_CPU
