// copies.cuh: the loader's copies into pages, and the barriers that say that pages are full or
// empty.

#ifndef MACO_CPU

namespace maco {

// Copies 16 bytes, both sides aligned to 16; asynchronously if the machine can.
MACO_FN void copy16(void* to, const void* from) {
#if MACO_HAS_ASYNC_COPY
  u32 address = shared_address(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
  *(Vec<u32, 4>*)to = *(const Vec<u32, 4>*)from;
#endif
}
// Likewise, or stores zeros if nothing is `there` to copy.
MACO_FN void copy16_or_zero(void* to, const void* from, bool there) {
#if MACO_HAS_ASYNC_COPY
  u32 address = shared_address(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
#else
  *(Vec<u32, 4>*)to = there ? *(const Vec<u32, 4>*)from : Vec<u32, 4>{};
#endif
}
// True for one of the loader's threads, always the same one, in a form from which the compiler
// knows that it is only one. All loader threads call it; `lane`: its number.
MACO_FN bool elected(int& lane) {
#if MACO_HAS_BOXES
  u32 chosen, which;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync %0|p, 0xffffffff;\n\tselp.u32 %1, 1, 0, p;\n\t}"
               : "=r"(which), "=r"(chosen));
  lane = (int)which;
  return chosen != 0;
#else
  lane = 0;
  return loader_thread() == 0;
#endif
}
// A page's full barrier, an mbarrier where the machine has them: all copies of the loader's threads
// into the page have arrived. All loader threads call `full_barrier_arrive` when they have issued
// their copies; or one of them calls `full_barrier_expect` before it copies boxes, and nothing
// else. `is_full` becomes true once round `round` (0, 1, ...) is complete.
MACO_FN void full_barrier_init(u64* full_barrier) {
#if MACO_HAS_ASYNC_COPY
  // One arrival from each thread for its asynchronous copies, and one for the ordinary stores of
  // all.
  u32 address = shared_address(full_barrier);
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(kLoaders + 1) : "memory");
#else
  *(u32*)full_barrier = 0;
#endif
}
// Announces that `bytes` of boxes will arrive in the page in round `round`; counts as all arrivals.
MACO_FN void full_barrier_expect(u64* full_barrier, u32 round, u32 bytes) {
  (void)round;
#if MACO_HAS_BOXES
  u32 address = shared_address(full_barrier);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(bytes)
               : "memory");
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(address), "n"(kLoaders + 1)
               : "memory");
#endif
}
// Copies the box at (row, col) of a matrix to `to`, aligned to 1024. Rows from `end` on, which a
// launch doesn't have, may get any data.
MACO_FN void copy_box(char* to, const TensorMap* map, i32 row, i32 col, u64* full_barrier,
                      i32 = 0x7fffffff) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(map), "r"(col), "r"(row), "r"(shared_address(full_barrier))
      : "memory");
#endif
}
// Likewise at column `col` of a run.
MACO_FN void copy_run_box(char* to, const TensorMap* map, i32 row, i32 run, i32 col,
                          u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
      "l"(map), "r"(col), "r"(run), "r"(row), "r"(shared_address(full_barrier))
      : "memory");
#endif
}
// The result of createpolicy.fractional.L2::evict_first for all data: as a constant it costs
// nothing. In the cache such data is evicted first.
[[maybe_unused]] constexpr u64 kReadOnce = 0x12f0000000000000;
// Copies the box of long rows at (row, byte) of a matrix that is read once to `to`, aligned to 128.
MACO_FN void copy_rows(char* to, const TensorMap* map, i32 row, i32 byte, u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(byte / 8), "r"(row), "r"(shared_address(full_barrier)), "l"(kReadOnce)
      : "memory");
#endif
}
// Copies contiguous bytes that are read once. `bytes` and both addresses: multiples of 16.
MACO_FN void copy_line(char* to, const char* from, u32 bytes, u64* full_barrier) {
#if MACO_HAS_BOXES
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(full_barrier)), "l"(kReadOnce)
      : "memory");
#endif
}
// Called before a CTA's first box through a map: makes the map visible as the host wrote it.
MACO_FN void map_begin(const TensorMap* map) {
#if MACO_HAS_BOXES
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
#endif
}
// Called before a task's first box of what other tasks wrote, whose signals the caller has seen.
MACO_FN void boxes_begin() {
#if MACO_HAS_BOXES
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
// Called behind a thread's writes to shared memory for wgmma, and before the barrier behind which
// the multiplications begin.
MACO_FN void operands_begin() {
#if MACO_HAS_BOXES
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Called once all boxes have been requested. (On the CPU target the boxes are there by then, and
// only this says so.)
MACO_FN void boxes_copied(u64* full_barrier, u32 round) { (void)full_barrier, (void)round; }
MACO_FN void full_barrier_arrive(u64* full_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  (void)round;
  u32 address = shared_address(full_barrier);
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address) : "memory");
  __syncwarp();
  if (loader_thread() == 0)
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
#else
  __syncwarp();
  if (loader_thread() == 0) store_release_cta((u32*)full_barrier, round + 1);
#endif
}
#if MACO_HAS_ASYNC_COPY
// Whether the mbarrier's phase `round` is over. If it isn't, a thread sleeps a while if the machine
// can: polling would take issue slots from the loader.
MACO_FN bool phase_over(const u64* barrier, u32 round) {
  u32 address = shared_address(barrier);
  u32 done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
#if __CUDA_ARCH__ >= 900
      "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
#else
      "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
#endif
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(address), "r"(round & 1)
      : "memory");
  return done != 0;
}
// The same for a thread that has looked in vain and has nothing else to do: it sleeps until the
// phase is over, or some 20 us. Each look costs power, which other SMs could use.
MACO_FN bool phase_over_soon(const u64* barrier, u32 round) {
#if __CUDA_ARCH__ >= 900
  u32 done;
  asm volatile(
      "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2, %3;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(shared_address(barrier)), "r"(round & 1), "r"(20000)
      : "memory");
  return done != 0;
#else
  return phase_over(barrier, round);
#endif
}
#endif
MACO_FN bool is_full(const u64* full_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  return phase_over(full_barrier, round);
#else
  return (i32)(load_acquire_cta((const u32*)full_barrier) - (round + 1)) >= 0;
#endif
}
// A page's empty barrier: all consumer warps have released the page. One lane of each warp calls
// `empty_barrier_arrive`, behind a warp_sync. `is_empty` becomes true once round `round` is
// complete.
MACO_FN void empty_barrier_init(u64* empty_barrier) {
#if MACO_HAS_ASYNC_COPY
  u32 address = shared_address(empty_barrier);
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(kWarps) : "memory");
#else
  *(u32*)empty_barrier = 0;
#endif
}
MACO_FN void empty_barrier_arrive(u64* empty_barrier, u32 round) {
  (void)round;
  u32 address = shared_address(empty_barrier);
#if MACO_HAS_ASYNC_COPY
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address) : "memory");
#else
  asm volatile("red.release.cta.shared.add.u32 [%0], 1;" ::"r"(address) : "memory");
#endif
}
MACO_FN bool is_empty(const u64* empty_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  return phase_over(empty_barrier, round);
#else
  return (i32)(load_acquire_cta((const u32*)empty_barrier) - (round + 1) * kWarps) >= 0;
#endif
}
MACO_FN bool is_empty_soon(const u64* empty_barrier, u32 round) {
#if MACO_HAS_ASYNC_COPY
  return phase_over_soon(empty_barrier, round);
#else
  return is_empty(empty_barrier, round);
#endif
}
// Called before the loader exits: none of its copies may be in flight.
MACO_FN void copies_drain() {
#if MACO_HAS_ASYNC_COPY
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace maco

#endif  // MACO_CPU
