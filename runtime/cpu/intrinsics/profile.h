// Clocks and stamps of profiles, and hooks of the debug modes.

namespace maco {

#ifdef MACO_PROFILE
constexpr bool kProfile = true;
#else
constexpr bool kProfile = false;
#endif
MACO_FN u64 sm_clock() { return now_ns(); }
MACO_FN void clock_pair(u64& ns, u64& clock) { ns = clock = now_ns(); }
MACO_FN void stamp_store(void* to, u32 a, u32 b, u32 c, u32 d) {
  const u32 words[4] = {a, b, c, d};
  std::memcpy(to, words, sizeof words);
}

MACO_FN void trace_task_begin(int place) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->task(self, place, true);
  maco_cpu::current = self;
}
MACO_FN void trace_task_end(int place) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->task(self, place, false);
  maco_cpu::current = self;
}

}  // namespace maco
