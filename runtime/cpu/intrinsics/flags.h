// Words that CTAs wait for, and packets. The executor is told of each change.

namespace maco {

MACO_FN u32 load_acquire_gpu(const u32* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
MACO_FN u32 load_acquire_sys(const u32* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
MACO_FN u32 load_acquire_cta(const u32* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
MACO_FN u32 load_relaxed(const u32* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
MACO_FN u32 load_relaxed_cta(const u32* p) { return load_relaxed(p); }
MACO_FN void add_release_gpu(u32* p, u32 v) {
  host::changing(p);
  __atomic_fetch_add(p, v, __ATOMIC_RELEASE);
  host::changed(p);
}
MACO_FN void add_release_sys(u32* p, u32 v) { add_release_gpu(p, v); }
MACO_FN void store_release_sys(u32* p, u32 v) {
  host::changing(p);
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
  host::changed(p);
}
MACO_FN void store_release_cta(u32* p, u32 v) { store_release_sys(p, v); }
MACO_FN void store_relaxed(u32* p, u32 v) {
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
  host::changed(p);
}
MACO_FN void add_relaxed(u32* p, u32 v) {
  host::changing(p);
  __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
  host::changed(p);
}
MACO_FN bool claim(u32* p) {
  u32 expected = 0;
  return __atomic_compare_exchange_n(p, &expected, 1u, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

MACO_FN void packet_store(u64* slot, u32 data, u32 flag) {
  host::touch(slot, 8, true);
  host::changing(slot);
  __atomic_store_n(slot, ((u64)flag << 32) | data, __ATOMIC_RELAXED);
  host::changed(slot);
}
MACO_FN u64 packet_load(const u64* slot) {
  host::touch(slot, 8, false);
  return __atomic_load_n(slot, __ATOMIC_RELAXED);
}

MACO_FN void packet_pair_store(u64* slot, u32 first, u32 second, u32 flag) {
  packet_store(slot, first, flag);
  packet_store(slot + 1, second, flag);
}
MACO_FN void packet_pair_load(const u64* slot, u64& first, u64& second) {
  first = packet_load(slot);
  second = packet_load(slot + 1);
}

namespace host {
template <int N, class W>
inline void load_words(const W* p, W* to) {
  touch(p, N * sizeof(W), false);
  for (int i = 0; i < N; ++i) to[i] = __atomic_load_n(p + i, __ATOMIC_RELAXED);
}
template <class W>
inline void store_word(W* p, W v) {
  touch(p, sizeof(W), true);
  changing(p);
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
  changed(p);
}
}  // namespace host
template <int N>
MACO_FN void words_load(const u32* p, u32* to) {
  host::load_words<N>(p, to);
}
template <int N>
MACO_FN void words_load(const u64* p, u64* to) {
  host::load_words<N>(p, to);
}
MACO_FN void word_store(u32* p, u32 v) { host::store_word(p, v); }
MACO_FN void word_store(u64* p, u64 v) { host::store_word(p, v); }

MACO_FN u64 now_ns() { return maco_cpu::current->now(maco_cpu::current); }
MACO_FN void pause_for(const void* word, u32 spins) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->pause(self, word, spins);
  maco_cpu::current = self;
}
constexpr u32 kSpinsAwake = 0;
constexpr u32 kSpinsPerLook = 1;

}  // namespace maco
