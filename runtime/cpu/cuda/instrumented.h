// instrumented.h: what the compiler calls before each access of instrumented code (-fsanitize=
// kernel-address with calls): the accesses of users' kernels are told to the executor, which knows
// the tensors. Behind the kernels, of which all code is instrumented.

#define MACO_PLAIN __attribute__((visibility("hidden"), no_sanitize_address))

MACO_PLAIN void maco_touched(unsigned long address, unsigned long bytes, bool writes) {
  if (!maco_cuda::block) return;  // not within a user's kernel
  maco_cpu::RoleContext* self = maco_cpu::current;
  if (self->touched) self->touched(self, reinterpret_cast<const void*>(address), bytes, writes);
}

#define MACO_TOUCHED(n)                                                         \
  extern "C" MACO_PLAIN void __asan_load##n##_noabort(unsigned long address) {  \
    maco_touched(address, n, false);                                            \
  }                                                                             \
  extern "C" MACO_PLAIN void __asan_store##n##_noabort(unsigned long address) { \
    maco_touched(address, n, true);                                             \
  }
MACO_TOUCHED(1)
MACO_TOUCHED(2)
MACO_TOUCHED(4)
MACO_TOUCHED(8)
MACO_TOUCHED(16)
#undef MACO_TOUCHED

extern "C" MACO_PLAIN void __asan_loadN_noabort(unsigned long address, unsigned long bytes) {
  maco_touched(address, bytes, false);
}
extern "C" MACO_PLAIN void __asan_storeN_noabort(unsigned long address, unsigned long bytes) {
  maco_touched(address, bytes, true);
}
extern "C" MACO_PLAIN void __asan_handle_no_return() {}
extern "C" MACO_PLAIN void* __asan_memcpy(void* to, const void* from, unsigned long bytes) {
  maco_touched(reinterpret_cast<unsigned long>(from), bytes, false);
  maco_touched(reinterpret_cast<unsigned long>(to), bytes, true);
  return memcpy(to, from, bytes);
}
extern "C" MACO_PLAIN void* __asan_memmove(void* to, const void* from, unsigned long bytes) {
  maco_touched(reinterpret_cast<unsigned long>(from), bytes, false);
  maco_touched(reinterpret_cast<unsigned long>(to), bytes, true);
  return memmove(to, from, bytes);
}
extern "C" MACO_PLAIN void* __asan_memset(void* to, int value, unsigned long bytes) {
  maco_touched(reinterpret_cast<unsigned long>(to), bytes, true);
  return memset(to, value, bytes);
}
