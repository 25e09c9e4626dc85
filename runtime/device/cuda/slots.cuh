// slots.cuh: where blocks of a user's kernel run. On a GPU as many blocks run at once as there are
// slots, on the CPU target one after the other.
//
// A slot has as many warps as a block, and shared memory of its own: a head with the block's place,
// the block's static memory, its dynamic memory. Threads of the last warp that a block doesn't
// have, and threads that have returned, take part in its barriers until all have returned.

namespace maco {
namespace cuda {

constexpr int kSlotHead = 256, kSlotAlign = 128;
MACO_FN constexpr int slot_up(int bytes) {
  return (bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign;
}

struct Index3 {
  u32 x, y, z;
};

#ifdef MACO_CPU

// Shared memory of the running block, behind its head.
MACO_FN char* shared_memory(int at) { return maco_cuda::block->shared + at; }

template <class C>
struct Slots {
  using Unit = typename C::unit;
  struct Run {
    const Context& ctx;
    const Args& args;
    static void body(void* self) {
      const Run& run = *static_cast<Run*>(self);
      Unit::template maco_run<C>(run.ctx, run.args);
    }
  };
  static constexpr int count = 1;
  static MACO_FN int index() { return 0; }
  static MACO_FN void run(Context& ctx, const Args& args, Index3 at, Index3 grid, i64 number) {
    maco_cuda::Block& block = maco_cuda::block_of_thread();
    block.threads = Unit::kThreads;
    block.extent = {Unit::kX, Unit::kY, Unit::kZ};
    block.at = {at.x, at.y, at.z};
    block.grid = {grid.x, grid.y, grid.z};
    block.shared = ctx.scratch() + kSlotHead;
    block.dynamic_at = slot_up(Unit::kStaticBytes);
    Run run{ctx, args};
    if (!maco_cuda::run_block(block, Run::body, &run))
      stop_run(ctx, kWaitThreads, 0, -1, 0, 0, 0, number, 0);
  }
};

#else

MACO_FN u32 warp_mask(u32 mask = ~0u) { return mask; }
template <class T>
MACO_FN T load_plain(const T* pointer) {
  return *pointer;
}

// Some words of CUDA expand to these names, and stand among the user's macros, which might redefine
// other names.
struct SlotHead {
  Index3 block_at, grid_extent;
  u32 phase;      // barriers that all threads have passed
  u32 gone;       // threads that have returned
  u32 last;       // the phase that ends when all threads have returned
  u32 votes[4];   // at the barrier of phase p: votes[p % 4]
  u32 alive[32];  // by warp: lanes that haven't returned, if some may return early
};
static_assert(sizeof(SlotHead) <= kSlotHead, "the head has room");
constexpr int kFirstSlotBarrier = 4;  // named barriers: one for each slot

template <int kThreads>
struct Slot {
  static constexpr int kSpan = (kThreads + 31) / 32 * 32;
  static MACO_FN int index() { return consumer_thread() / kSpan; }
  static MACO_FN int thread() { return consumer_thread() % kSpan; }
  static MACO_FN char* slot_memory(int bytes) {
    return cta_memory() + Cta::kHeadBytes + index() * bytes;
  }
  // A barrier of a slot's threads. Those of a warp need not arrive together, as barriers that vote
  // (bar.red) would require.
  static MACO_FN void meet() {
    asm volatile("barrier.sync %0, %1;" ::"r"(kFirstSlotBarrier + index()), "n"(kSpan) : "memory");
  }
  static MACO_FN u32 phase_of(const SlotHead* head) { return load_relaxed(&head->phase); }
  static MACO_FN bool ends_with(const SlotHead* head, u32 phase) {
    return load_relaxed(&head->last) == phase;
  }
  // A barrier that counts the threads for which `value` is true, among those that haven't returned.
  static MACO_FN int slot_count(bool value, char* memory) {
    auto* head = (SlotHead*)memory;
    const u32 phase = phase_of(head);
    if (value) atomicAdd(&head->votes[phase % 4], 1u);
    meet();
    // All threads know the result of the previous barrier, and nobody votes yet in the word that is
    // used next. All write the same.
    store_relaxed(&head->votes[(phase + 3) % 4], 0);
    store_relaxed(&head->phase, phase + 1);
    return (int)load_relaxed(&head->votes[phase % 4]);
  }
  // Threads that have returned do this until all have: they take part in barriers. The last one to
  // return marks the next barrier as the last.
  static MACO_FN void stay(char* memory) {
    auto* head = (SlotHead*)memory;
    u32 phase = phase_of(head);
    if (atomicAdd(&head->gone, 1u) + 1 == kSpan) store_relaxed(&head->last, phase + 1);
    do {
      phase = phase_of(head);
      slot_count(false, memory);
    } while (!ends_with(head, phase + 1));
    meet();
  }
  static MACO_FN Index3 slot_thread(u32 x, u32 y) {
    const u32 t = (u32)thread();
    return {t % x, t / x % y, t / (x * y)};
  }
  // The lanes of this warp that the block has.
  static MACO_FN u32 lanes() {
    const int left = kThreads - thread() / 32 * 32;
    return left >= 32 ? ~0u : (1u << left) - 1;
  }
  // The lanes of these that haven't returned.
  template <bool kLeaving>
  static MACO_FN u32 slot_alive(const char* memory) {
    return kLeaving ? ((const SlotHead*)memory)->alive[thread() / 32] : lanes();
  }
  // All lanes of the warp that haven't returned call this; those with true are about to return.
  static MACO_FN bool slot_leaves(bool value, char* memory) {
    u32* own = &((SlotHead*)memory)->alive[thread() / 32];
    const u32 before = *own;
    const u32 leaving = __ballot_sync(before, value);
    if (!value) *own = before & ~leaving;
    return value;
  }
};

template <class C>
struct Slots {
  using Unit = typename C::unit;
  using Own = Slot<Unit::kThreads>;
  static constexpr int count = (int)C::slots;
  static MACO_FN int index() { return Own::index(); }
  static MACO_FN void run(Context& ctx, const Args& args, Index3 at, Index3 grid, i64) {
    auto* head = (SlotHead*)Own::slot_memory(C::slot_bytes);
    if (Own::thread() % 32 == 0) head->alive[Own::thread() / 32] = Own::lanes();
    if (Own::thread() == 0) {
      head->block_at = at;
      head->grid_extent = grid;
      head->phase = head->gone = head->last = 0;
      for (u32& votes : head->votes) votes = 0;
    }
    Own::meet();
    if (Own::thread() < Unit::kThreads) Unit::template maco_run<C>(ctx, args);
    Own::stay((char*)head);
  }
};

#endif

}  // namespace cuda
}  // namespace maco
