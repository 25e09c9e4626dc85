// pages.cuh: the ring of shared-memory pages that a CTA's loader fills ahead of its consumers.
//
// Pages are used in the order of the ring. The loader may run ahead as far as pages are free; a
// page is the consumers' once the copies of all loader threads have landed in it, however many
// pages are still in flight behind it.

namespace maco {

// A CTA without pages never asks for one.
constexpr u32 kRingPages = Cta::kPages > 0 ? Cta::kPages : 1;

// Loader: a free page, or nullptr if the run stops. All loader threads get the same.
MACO_FN char* page_acquire(Context& ctx) {
  bool ok = true;
  const u64* empty_barrier = &ctx.memory->empty_barriers[ctx.page_slot];
  const u32 last = ctx.page_round - 1;  // round in which the page was used last
  if (ctx.page_round > 0 && !is_empty(empty_barrier, last)) {
    Watch watch(ctx, empty_barrier, kPatienceLoader, kWaitPage, ctx.page_slot);
    const u64 since = ctx.profile_pause();
    while (!is_empty(empty_barrier, last)) {
      if (watch.again()) continue;
      watch.give_up(ctx.page_index + 1 - kRingPages, ctx.page_index - kRingPages);
      ok = false;
      break;
    }
    ctx.profile_page(since);
  }
  if (warp_any(!ok)) return nullptr;
  return ctx.pages + (i64)ctx.page_slot * Cta::kPageBytes;
}

// Loader: copies `count` elements into the acquired page, asynchronously where the machine can and
// both sides are aligned to 16.
template <class T>
MACO_FN void page_copy(Context& ctx, char* to, const T* from, i64 count) {
  (void)ctx;
  i64 done = 0;
  if ((((u64)to | (u64)from) & 15) == 0) {
    i64 chunks = count * (i64)sizeof(T) / 16;
    for (i64 i = loader_thread(); i < chunks; i += kLoaders)
      copy16(to + i * 16, (const char*)from + i * 16);
    done = chunks * 16 / (i64)sizeof(T);
  }
  T* elements = (T*)to;
  for (i64 i = done + loader_thread(); i < count; i += kLoaders) elements[i] = gload(from + i);
}

// Loader: nothing more is copied into the page; the consumers get it when all has landed.
MACO_FN void page_publish(Context& ctx) {
  full_barrier_arrive(&ctx.memory->full_barriers[ctx.page_slot], ctx.page_round);
  ++ctx.page_index;
  if (++ctx.page_slot == kRingPages) {
    ctx.page_slot = 0;
    ++ctx.page_round;
  }
}

// Waits until a page is full; false if the run stops. Out of line: it would cost registers in every
// loop over pages.
MACO_OP bool page_await(Context& ctx, u32 slot, u32 round, u32 index) {
  const u64* full_barrier = &ctx.memory->full_barriers[slot];
  Watch watch(ctx, full_barrier, kPatienceOther, kWaitPage, slot);
  const u64 since = ctx.profile_pause();
  bool ok = true;
  while (!is_full(full_barrier, round)) {
    if (watch.again()) continue;
    watch.give_up(index + 1, index);
    ok = false;
    break;
  }
  ctx.profile_page(since);
  return ok;
}

// A warp of the consumers lets go the page that it has waited for first and still holds.
MACO_FN void page_let_go(CtaMemory* memory, u32 released) {
  warp_sync();
  if (warp_lane() == 0)
    empty_barrier_arrive(&memory->empty_barriers[released % kRingPages], released / kRingPages);
}

// Consumers that take page after page, each warp at its own pace: as page_wait and page_release,
// with the ring's state in registers and no barrier. Where the run stops, pages may hold anything
// from then on; the CTA leaves when the task has ended.
struct PageTaker {
  Context& ctx;
  CtaMemory* const memory;
  const char* const pages;
  u32 index, slot, round, released;
  bool ok = true;
  MACO_FN explicit PageTaker(Context& c)
      : ctx(c),
        memory(c.memory),
        pages(c.pages),
        index(c.page_index),
        slot(c.page_slot),
        round(c.page_round),
        released(c.pages_released) {}
  MACO_FN const char* take() {
    if (ok && !is_full(&memory->full_barriers[slot], round))
      ok = page_await(ctx, slot, round, index);
    const char* page = pages + (i64)slot * Cta::kPageBytes;
    ++index;
    if (++slot == kRingPages) {
      slot = 0;
      ++round;
    }
    return page;
  }
  MACO_FN void release() { page_let_go(memory, released++); }
  // Hands the state back to the context.
  MACO_FN void finish() {
    ctx.page_index = index;
    ctx.page_slot = slot;
    ctx.page_round = round;
    ctx.pages_released = released;
  }
};

// Consumers: the next page, or nullptr (for all threads) if the run stops. Contains a barrier.
// Several pages may be held.
MACO_FN const char* page_wait(Context& ctx) {
  bool ok = true;
  if (!is_full(&ctx.memory->full_barriers[ctx.page_slot], ctx.page_round))
    ok = page_await(ctx, ctx.page_slot, ctx.page_round, ctx.page_index);
  if (cta_any(!ok)) return nullptr;
  const char* page = ctx.pages + (i64)ctx.page_slot * Cta::kPageBytes;
  ++ctx.page_index;
  if (++ctx.page_slot == kRingPages) {
    ctx.page_slot = 0;
    ++ctx.page_round;
  }
  return page;
}

// Consumers: the page that was waited for first and not yet released is free again. Contains a
// barrier.
MACO_FN void page_release(Context& ctx) {
  cta_sync();
  page_let_go(ctx.memory, ctx.pages_released++);
}

}  // namespace maco
