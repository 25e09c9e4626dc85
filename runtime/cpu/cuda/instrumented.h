// instrumented.h: functions that the compiler calls before each access of instrumented code
// (-fsanitize=kernel-address with calls). They report the accesses of users' kernels to the
// executor, which knows the tensors. This file stands behind the kernels, all of whose code is
// instrumented.

#define MACO_PLAIN __attribute__((visibility("hidden"), no_sanitize_address))

MACO_PLAIN void maco_touched(unsigned long address, unsigned long bytes, bool writes) {
  if (!maco_cuda::block || bytes == 0) return;  // not within a user's kernel
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

// The C library's functions, under names that compilers don't know.
extern "C" void* maco_memcpy(void*, const void*, unsigned long,
                             unsigned long) __asm__("__memcpy_chk");
extern "C" void* maco_memmove(void*, const void*, unsigned long,
                              unsigned long) __asm__("__memmove_chk");
extern "C" void* maco_memset(void*, int, unsigned long, unsigned long) __asm__("__memset_chk");

// Clang calls those with __asan_ in their names; GCC calls the others, defined in this shared
// object.
#define MACO_COPIES(prefix)                                                                       \
  extern "C" MACO_PLAIN void* prefix##memcpy(void* to, const void* from,                          \
                                             unsigned long bytes) noexcept {                      \
    maco_touched(reinterpret_cast<unsigned long>(from), bytes, false);                            \
    maco_touched(reinterpret_cast<unsigned long>(to), bytes, true);                               \
    return maco_memcpy(to, from, bytes, bytes);                                                   \
  }                                                                                               \
  extern "C" MACO_PLAIN void* prefix##memmove(void* to, const void* from,                         \
                                              unsigned long bytes) noexcept {                     \
    maco_touched(reinterpret_cast<unsigned long>(from), bytes, false);                            \
    maco_touched(reinterpret_cast<unsigned long>(to), bytes, true);                               \
    return maco_memmove(to, from, bytes, bytes);                                                  \
  }                                                                                               \
  extern "C" MACO_PLAIN void* prefix##memset(void* to, int value, unsigned long bytes) noexcept { \
    maco_touched(reinterpret_cast<unsigned long>(to), bytes, true);                               \
    return maco_memset(to, value, bytes, bytes);                                                  \
  }
MACO_COPIES(__asan_)
MACO_COPIES()
#undef MACO_COPIES
