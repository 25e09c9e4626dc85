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
  const u32* freed = &ctx.memory->freed;
  if (ctx.page_index - load_acquire_cta(freed) >= kRingPages) {
    Watch watch(ctx, freed, kPatienceLoader, kWaitPage, ctx.page_slot);
    const u64 since = ctx.profile_pause();
    while (ctx.page_index - load_acquire_cta(freed) >= kRingPages) {
      if (watch.again()) continue;
      watch.give_up(ctx.page_index + 1 - kRingPages, load_relaxed(freed));
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

// Consumers: the next page, or nullptr (for all threads) if the run stops. Contains a barrier.
// Several pages may be held.
MACO_FN const char* page_wait(Context& ctx) {
  const u64* full_barrier = &ctx.memory->full_barriers[ctx.page_slot];
  bool ok = true;
  if (!is_full(full_barrier, ctx.page_round)) {
    Watch watch(ctx, full_barrier, kPatienceOther, kWaitPage, ctx.page_slot);
    const u64 since = ctx.profile_pause();
    while (!is_full(full_barrier, ctx.page_round)) {
      if (watch.again()) continue;
      watch.give_up(ctx.page_index + 1, ctx.page_index);
      ok = false;
      break;
    }
    ctx.profile_page(since);
  }
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
  ++ctx.pages_released;
  if (consumer_thread() == 0) store_release_cta(&ctx.memory->freed, ctx.pages_released);
}

}  // namespace maco
