// pair.cuh: the memory of the other CTA of a pair.

#ifndef MACO_CPU

namespace maco {

// The address in the other CTA's shared memory that corresponds to `p` in the own one.
MACO_FN u32 mate_address(const void* p) {
  u32 address = 0;
#if MACO_HAS_BOXES
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(address)
      : "r"(shared_address(p)), "r"((cta_id() & 1) ^ 1));
#endif
  return address;
}
// Stores to a word of the other CTA, which that CTA reads like words of its own. A release and an
// acquire of both CTAs would take a microsecond, and the word only says that reads have ended.
MACO_FN void mate_store(u32* p, u32 v) {
#if MACO_HAS_BOXES
  asm volatile("st.relaxed.cluster.shared::cluster.u32 [%0], %1;" ::"r"(mate_address(p)), "r"(v)
               : "memory");
#endif
}
// Reads a word of the other CTA's, behind a pair_sync.
MACO_FN u32 mate_load(const u32* p) {
  u32 v = 0;
#if MACO_HAS_BOXES
  asm volatile("ld.relaxed.cluster.shared::cluster.u32 %0, [%1];"
               : "=r"(v)
               : "r"(mate_address(p))
               : "memory");
#endif
  return v;
}
// Whether a page's full barrier counts what the other CTA sends. If not, the other has to tell.
constexpr bool kCountsSent = true;
// Sends 16 bytes to a page of the other CTA, at the address that corresponds to `to`, and counts
// them in its full barrier.
MACO_FN void mate_send16(void* to, const Vec<u32, 4>& v, u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(mate_address(to)),
      "r"(v.v[0]), "r"(v.v[1]), "r"(v.v[2]), "r"(v.v[3]), "r"(mate_address(full_barrier))
      : "memory");
#endif
}
// A barrier of all threads of both CTAs: mbarriers that either has initialized are then visible to
// the other.
MACO_FN void pair_sync() {
#if MACO_HAS_BOXES
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

}  // namespace maco

#endif  // MACO_CPU
