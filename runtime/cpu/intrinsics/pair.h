// The memory of the other CTA of a pair.

namespace maco {

namespace host {
template <class T>
T* of_mate(T* p) {
  return (T*)(maco_cpu::current->mate_memory + ((char*)p - maco_cpu::current->memory));
}
}  // namespace host
MACO_FN u32 mate_load(const u32* p) { return load_relaxed(host::of_mate(p)); }
MACO_FN void mate_store(u32* p, u32 v) { store_release_cta(host::of_mate(p), v); }
constexpr bool kCountsSent = false;
MACO_FN void mate_send16(void* to, const Vec<u32, 4>& v, u64*) {
  std::memcpy(host::of_mate((char*)to), &v, 16);
}
MACO_FN void pair_sync() {}

}  // namespace maco
