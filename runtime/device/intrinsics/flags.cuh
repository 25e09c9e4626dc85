// flags.cuh: words that CTAs wait for, and packets, which carry their flags. The release and the
// acquire are on the word itself.

#ifndef MACO_CPU

namespace maco {

MACO_FN u32 load_acquire_gpu(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
MACO_FN u32 load_acquire_sys(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
MACO_FN void add_release_gpu(u32* p, u32 v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void add_release_sys(u32* p, u32 v) {
  asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void store_release_sys(u32* p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Words in the CTA's shared memory.
MACO_FN u32 load_acquire_cta(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(p)) : "memory");
  return v;
}
MACO_FN u32 load_relaxed_cta(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(p)) : "memory");
  return v;
}
MACO_FN void store_release_cta(u32* p, u32 v) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(p)), "r"(v) : "memory");
}
// Accesses to words that order nothing.
MACO_FN u32 load_relaxed(const u32* p) {
  u32 v;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
MACO_FN void store_relaxed(u32* p, u32 v) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void add_relaxed(u32* p, u32 v) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Sets a word of this rank or CTA to 1; true for the caller that found 0.
MACO_FN bool claim(u32* p) {
  u32 old;
  asm volatile("atom.relaxed.gpu.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(p) : "memory");
  return old == 0;
}

// Packets: 4 bytes of data, then 4 bytes of flag; only the 8 bytes together are atomic.
MACO_FN void packet_store(u64* slot, u32 data, u32 flag) {
  u64 v = ((u64)flag << 32) | data;
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(slot), "l"(v) : "memory");
}
MACO_FN u64 packet_load(const u64* slot) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(slot) : "memory");
  return v;
}

// Stores two adjacent packets, at a multiple of 16 bytes, in one access; each is atomic by itself.
MACO_FN void packet_pair_store(u64* slot, u32 first, u32 second, u32 flag) {
  const u64 a = ((u64)flag << 32) | first, b = ((u64)flag << 32) | second;
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(slot), "l"(a), "l"(b)
               : "memory");
}
MACO_FN void packet_pair_load(const u64* slot, u64& first, u64& second) {
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(first), "=l"(second)
               : "l"(slot)
               : "memory");
}

// Packets between a rank's own tasks: a value and its flag in a word of 4 or 8 bytes, which is
// atomic. N words, at most 16 bytes.
template <int N>
MACO_FN void words_load(const u32* p, u32* to) {
  if constexpr (N == 4) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(p)
                 : "memory");
  } else if constexpr (N == 2) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "l"(p)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(to[0]) : "l"(p) : "memory");
  }
}
template <int N>
MACO_FN void words_load(const u64* p, u64* to) {
  if constexpr (N == 2) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(to[0]), "=l"(to[1])
                 : "l"(p)
                 : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(to[0]) : "l"(p) : "memory");
  }
}
MACO_FN void word_store(u32* p, u32 v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
MACO_FN void word_store(u64* p, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// ---- waiting ----------------------------------------------------------------

MACO_FN u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
// Pauses between two looks at `word`, after `spins` looks. A hand-off is as fast as this loop, so
// it sleeps only after a while.
constexpr u32 kSpinsAwake = 4096;
MACO_FN void pause_for(const void* word, u32 spins) {
  (void)word;
  if (spins > kSpinsAwake) __nanosleep(64);
}
// The clock and the abort word are checked only once in so many spins, so that short waits don't
// run that code, which would take room in the instruction cache. (In waits that sleep a spin lasts
// up to 20 us, and so many spins some 80 ms.)
constexpr u32 kSpinsPerLook = 4096;

}  // namespace maco

#endif  // MACO_CPU
