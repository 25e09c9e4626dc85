// profile.cuh: clocks and stamps of profiles, and hooks of the CPU's debug modes.

#ifndef MACO_CPU

namespace maco {

#ifdef MACO_PROFILE
constexpr bool kProfile = true;
#else
constexpr bool kProfile = false;
#endif
// The SM's clock.
MACO_FN u64 sm_clock() {
  u64 t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
// Reads both clocks at one moment: when the GPU's clock, which may change only once in a
// microsecond, is seen to change.
MACO_FN void clock_pair(u64& ns, u64& clock) {
  const u64 before = now_ns();
  u32 looks = 0;
  do {
    ns = now_ns();
    clock = sm_clock();
  } while (ns == before && ++looks < 4096);
}
MACO_FN void stamp_store(void* to, u32 a, u32 b, u32 c, u32 d) {
  *(uint4*)to = make_uint4(a, b, c, d);
}

// ---- hooks of the CPU's debug modes -----------------------------------------

MACO_FN void trace_task_begin(int place) { (void)place; }
MACO_FN void trace_task_end(int place) { (void)place; }

}  // namespace maco

#endif  // MACO_CPU
