// Calls of the executor, which the other headers make.

namespace maco {

namespace host {
inline void changing(const void* word) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->changing(self, word);
  maco_cpu::current = self;
}
inline void changed(const void* word) {
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->changed(self, word);
  maco_cpu::current = self;
}
inline void touch(const void* address, u64 bytes, bool writes) {
#ifdef MACO_CHECK_ACCESS
  maco_cpu::RoleContext* self = maco_cpu::current;
  self->access(self, address, bytes, writes);
#else
  (void)address, (void)bytes, (void)writes;
#endif
}
// An access of a power of two of bytes. A GPU stops if their address isn't a multiple of that.
inline void touch_at_once(const void* address, u64 bytes, bool writes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) __builtin_trap();
  touch(address, bytes, writes);
}
}  // namespace host

}  // namespace maco
