// pages.cuh: the ring of shared-memory pages that a CTA's loader fills ahead of its consumers.
//
// Pages are used in the order of the ring. The loader may run ahead while pages are free. A page
// belongs to the consumers once the copies of all loader threads have arrived in it, however many
// pages behind it are still in flight.

namespace maco {

// A CTA without pages never requests one.
constexpr u32 kRingPages = Cta::kPages > 0 ? Cta::kPages : 1;
// Whether warps that wait for the CTA's consumers sleep between looks. They do if tasks are long,
// which is when roles divide registers.
constexpr bool kRests = Cta::kConsumerRegisters > 0;

// Loader: waits until the page in `slot` was released in `round`; returns false if the run stops.
// Not inlined: it would cost registers in every loop over pages.
MACO_OP bool page_await_empty(Context& ctx, u32 slot, u32 round, u32 index) {
  const u64* empty_barrier = &ctx.memory()->empty_barriers[slot];
  WatchState state(0);
  Watch watch(ctx, state, empty_barrier, kPatienceLoader, kWaitPage, slot);
  const u64 since = ctx.profile_pause();
  bool ok = true;
  while (!(kRests ? is_empty_soon(empty_barrier, round) : is_empty(empty_barrier, round))) {
    if (watch.again()) continue;
    watch.give_up(index + 1 - kRingPages, index - kRingPages);
    ok = false;
    break;
  }
  ctx.profile_page(since);
  return ok;
}

// Waits until a page is full; returns false if the run stops. Not inlined, as page_await_empty.
MACO_OP bool page_await(Context& ctx, u32 slot, u32 round, u32 index) {
  if (ctx.stopped()) return false;  // a task with many pages shouldn't wait for each
  const u64* full_barrier = &ctx.memory()->full_barriers[slot];
  WatchState state(0);
  Watch watch(ctx, state, full_barrier, kPatienceOther, kWaitPage, slot);
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

// Waits until a word in which another role of the CTA counts has reached the current task's place,
// or another such word has; returns false if the run stops.
MACO_OP bool await_place(Context& ctx, const u32* word, const u32* other) {
  const u32 place = (u32)ctx.place + 1;
  WatchState state(0);
  Watch watch(ctx, state, word, kPatienceLoader, kWaitPage);
  for (u32 seen = load_acquire_cta(word); !reached(seen, place); seen = load_acquire_cta(word)) {
    if (other && reached(load_acquire_cta(other), place)) break;
    if (watch.again()) continue;
    watch.give_up(place, seen);
    return false;
  }
  return true;
}
// Loader: waits until the task's waits are over, and what earlier tasks of the CTA write for it is
// there.
MACO_FN bool await_passed(Context& ctx) {
  return await_place(ctx, &ctx.memory()->passed,
                     kHasScout ? &ctx.memory()->scouted : (const u32*)nullptr);
}
// Waits until a count is reached, in a warp that signals or sends, all of its lanes together.
// Reports nothing. The consumers' own wait is the one to report, but this wait would come first, as
// looks at shared memory are so quick. It lasts as long as the consumers do, whose waits have
// deadlines.
MACO_OP bool await_quietly(Context& ctx, const u32* word, u32 count) {
  WatchState state(0);
  Watch watch(ctx, state, word, kPatienceLoader, kWaitPage);
  while (warp_any(!reached(load_acquire_cta(word), count))) {
    const bool ends = !watch.again(kRests) && state.stopped_by > 0;
    if (warp_any(ends || ctx.stopped())) return false;
  }
  return true;
}
// Signaller: waits until the consumers have finished the task.
MACO_FN bool await_done(Context& ctx) {
  return await_quietly(ctx, &ctx.memory()->done, (u32)ctx.place + 1);
}

// Consumers: whether the scout has found the task's waits over. A thread that acquires the scout's
// word has acquired what the scout has. All lanes of a warp get the same answer.
MACO_FN bool was_scouted(const Context& ctx) {
  if constexpr (kHasScout || kLoaderScouts)
    return !warp_any(!reached(load_acquire_cta(&ctx.memory()->scouted), (u32)ctx.place + 1));
  return false;
}

// ---- exchanges ---------------------------------------------------------------
//
// CTAs 2k and 2k + 1 are a pair, whose tasks may be mates. After its loads for such a task each CTA
// offers pages of its ring to the other, which fills them. Both sides count exchanges in the same
// way.

// The offer of pages from `slot` on, for exchange `count`.
static_assert(kRingPages <= 32, "an offer has room for a slot");
MACO_FN u32 page_offer(u32 count, u32 slot) { return (count + 1) * 32 + slot; }
// Consumers: waits for the other CTA's offer; returns its slot, or kRingPages if the run stops.
MACO_OP u32 await_offer(Context& ctx) {
  const u32 count = ctx.exchanges, *word = &ctx.memory()->mate_offers[count % kRingPages];
  WatchState state(0);
  Watch watch(ctx, state, word, kPatienceOther, kWaitMate);
  const u64 since = ctx.profile_pause();
  u32 offer = load_acquire_cta(word);
  for (; !reached(offer / 32, count + 1); offer = load_acquire_cta(word)) {
    if (watch.again()) continue;
    watch.give_up(count + 1, offer / 32);
    return kRingPages;
  }
  ctx.profile_page(since);
  return offer % 32;
}
// Loader, where nothing counts what is sent: waits until the other CTA has filled the pages;
// returns false if the run stops.
MACO_OP bool await_sent(Context& ctx) {
  const u32 count = ctx.exchanges, *word = &ctx.memory()->mate_sent[count % kRingPages];
  WatchState state(0);
  Watch watch(ctx, state, word, kPatienceLoader, kWaitMate);
  for (u32 sent = load_acquire_cta(word); !reached(sent, count + 1);
       sent = load_acquire_cta(word)) {
    if (watch.again()) continue;
    watch.give_up(count + 1, sent);
    return false;
  }
  return true;
}

// A use of a page: its slot, and how often it was filled before.
struct PageUse {
  u32 slot, round;
  MACO_FN void next() {
    if (++slot == kRingPages) {
      slot = 0;
      ++round;
    }
  }
  // The use `count` pages further, at most one round of the ring.
  MACO_FN PageUse behind(u32 count) const {
    const u32 at = slot + count;
    return at < kRingPages ? PageUse{at, round} : PageUse{at - kRingPages, round + 1};
  }
};

// The loader's side of the ring while it fills a task's pages, with the ring's state in registers.
// Either all loader threads acquire and publish each page, or one thread alone does so, which
// copies boxes and nothing else; then all call finish.
struct PageFiller {
  Context& ctx;
  CtaMemory* const memory;
  char* const pages;
  u32 index, slot, round;
  MACO_FN explicit PageFiller(Context& c)
      : ctx(c),
        memory(c.memory()),
        pages(c.pages()),
        index(c.page_index),
        slot(c.page_slot),
        round(c.page_round) {}

  // (A page that was never used counts as released in round -1.)
  MACO_FN bool is_free() {
    return is_empty(&memory->empty_barriers[slot], round - 1) ||
           page_await_empty(ctx, slot, round - 1, index);
  }
  MACO_FN char* page() const { return pages + (i64)slot * Cta::kPageBytes; }
  // A free page, or nullptr if the run stops.
  MACO_FN char* acquire() { return warp_any(!is_free()) ? nullptr : page(); }
  // Nothing more is copied into the page; the consumers get it when everything has arrived.
  MACO_FN void publish() {
    full_barrier_arrive(&memory->full_barriers[slot], round);
    next();
  }
  // The same for a thread that copies boxes alone: a page for `bytes` bytes of boxes.
  MACO_FN char* acquire_boxes(u32 bytes) {
    if (!is_free()) return nullptr;
    expect_boxes(bytes);
    return page();
  }
  // The same in two steps. Waits until the next kCount pages are free; looks at all of them before
  // it waits for one. Returns false if the run stops.
  template <int kCount>
  MACO_FN bool await_free() {
    static_assert(kCount <= (int)kRingPages, "the ring has so many");
    bool all = true;
    PageUse page = {slot, round};
    MACO_UNROLL
    for (int p = 0; p < kCount; ++p) {
      all &= is_empty(&memory->empty_barriers[page.slot], page.round - 1);
      page.next();
    }
    if (all) return true;
    page = {slot, round};
    MACO_ROLLED
    for (int p = 0; p < kCount; ++p) {
      if (!is_empty(&memory->empty_barriers[page.slot], page.round - 1) &&
          !page_await_empty(ctx, page.slot, page.round - 1, index + (u32)p))
        return false;
      page.next();
    }
    return true;
  }
  // The next page, which is free, will get `bytes` bytes.
  MACO_FN void expect_boxes(u32 bytes) {
    full_barrier_expect(&memory->full_barriers[slot], round, bytes);
  }
  // Copies the box at (row, col) of a matrix to swizzled lines of 128 bytes.
  MACO_FN void copy_box(char* to, const TensorMap* map, i64 row, i64 col, i64 end = 0x7fffffff) {
    maco::copy_box(to, map, (i32)row, (i32)col, &memory->full_barriers[slot], (i32)end);
  }
  // Likewise at column `col` of a run.
  MACO_FN void copy_run_box(char* to, const TensorMap* map, i64 row, i64 run, i64 col) {
    maco::copy_run_box(to, map, (i32)row, (i32)run, (i32)col, &memory->full_barriers[slot]);
  }
  // Copies the box at (row, byte) of a matrix that is read once, row by row.
  MACO_FN void copy_rows(char* to, const TensorMap* map, i64 row, i64 byte) {
    maco::copy_rows(to, map, (i32)row, (i32)byte, &memory->full_barriers[slot]);
  }
  // Copies `bytes` contiguous bytes that are read once; these and both addresses are multiples of
  // 16.
  MACO_FN void copy_line(char* to, const char* from, u32 bytes) {
    maco::copy_line(to, from, bytes, &memory->full_barriers[slot]);
  }
  // Offers the pair's other CTA the next pages, for the `bytes` of an exchange, which all lanes
  // count behind finish.
  MACO_FN bool offer(u32 bytes) {
    PageUse page = {slot, round};
    const u32 first = slot;
    constexpr u32 kMost = Cta::kPageBytes > 0 ? Cta::kPageBytes : 1;
    for (u32 left = bytes; left > 0;) {
      const u32 here = left < kMost ? left : kMost;
      if (!is_free()) return false;
      expect_boxes(here);
      next();
      left -= here;
    }
    mate_store(&memory->mate_offers[ctx.exchanges % kRingPages], page_offer(ctx.exchanges, first));
    if (kCountsSent) return true;
    if (!await_sent(ctx)) return false;
    for (u32 left = bytes; left > 0; left -= left < kMost ? left : kMost, page.next())
      boxes_copied(&memory->full_barriers[page.slot], page.round);
    return true;
  }
  MACO_FN void publish_boxes() {
    boxes_copied(&memory->full_barriers[slot], round);
    next();
  }
  MACO_FN void next() {
    ++index;
    if (++slot == kRingPages) {
      slot = 0;
      ++round;
    }
  }
  // Publishes empty pages up to a slot that is a multiple of `group`; returns false if the run
  // stops.
  MACO_FN bool align_boxes(u32 group) {
    while (slot % group != 0) {
      if (!acquire_boxes(0)) return false;
      publish_boxes();
    }
    return true;
  }
  // Skips pages, which are filled before or later.
  MACO_FN void skip(int count) {
    for (int p = 0; p < count; ++p) next();
  }
  // Stores the state of thread `lane` in the context.
  MACO_FN void finish(int lane = 0) {
    warp_sync();  // all lanes must have read the context before it changes
    ctx.page_index = (u32)shuffle((int)index, lane);
    ctx.page_slot = (u32)shuffle((int)slot, lane);
    ctx.page_round = (u32)shuffle((int)round, lane);
  }
};

// The same for one thread that copies boxes alone, page after page of `bytes` each, with at most
// kInFlight pages in flight: more than the memory bandwidth needs would only make others wait.
template <u32 kInFlight>
struct BoxFiller {
  static constexpr u32 kAway = kInFlight < kRingPages ? kInFlight : kRingPages;
  PageFiller& filler;
  u32 behind, behind_round;  // the page that must have arrived
  MACO_FN explicit BoxFiller(PageFiller& f)
      : filler(f),
        behind(f.slot >= kAway ? f.slot - kAway : f.slot + kRingPages - kAway),
        behind_round(f.slot >= kAway ? f.round : f.round - 1) {}
  // Returns false if the run stops.
  MACO_FN bool acquire(u32 bytes) {
    PageFiller& f = filler;
    if (!is_empty(&f.memory->empty_barriers[f.slot], f.round - 1) &&
        !page_await_empty(f.ctx, f.slot, f.round - 1, f.index))
      return false;
    if (kAway < kRingPages && !is_full(&f.memory->full_barriers[behind], behind_round) &&
        !page_await(f.ctx, behind, behind_round, f.index - kAway))
      return false;
    full_barrier_expect(&f.memory->full_barriers[f.slot], f.round, bytes);
    return true;
  }
  MACO_FN void publish() {
    filler.publish_boxes();
    if (++behind == kRingPages) {
      behind = 0;
      ++behind_round;
    }
  }
};

// Loader: copies `count` elements into the acquired page; asynchronously if the machine can and
// both sides are aligned to 16.
template <class T>
MACO_FN void page_copy(char* to, const T* from, i64 count) {
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

// A consumer warp releases a page for which it has waited.
MACO_FN void page_let_go(CtaMemory* memory, PageUse page) {
  warp_sync();
  if (warp_lane() == 0) empty_barrier_arrive(&memory->empty_barriers[page.slot], page.round);
}
MACO_FN void page_let_go(CtaMemory* memory, u32 index) {
  page_let_go(memory, PageUse{index % kRingPages, index / kRingPages});
}

// Consumers that take page after page, each warp at its own pace: as page_wait and page_release,
// with the ring's state in registers and no barrier. If the run stops, pages may hold anything from
// then on; the CTA exits when the task has ended.
struct PageTaker {
  Context& ctx;
  CtaMemory* const memory;
  const char* const pages;
  u32 index, slot, round;
  PageUse held;  // the first page taken and not yet released; none between tasks
  MACO_FN explicit PageTaker(Context& c)
      : ctx(c),
        memory(c.own),
        pages((const char*)c.own + (c.pages() - (const char*)c.memory())),
        index(c.page_index),
        slot(c.page_slot),
        round(c.page_round),
        held{slot, round} {}
  // Whether the next `count` pages have arrived; waits not at all, or only shortly.
  MACO_FN bool landed(int count) const {
    bool all = true;
    PageUse page = {slot, round};
    for (int p = 0; p < count; ++p) {
      all &= is_full(&memory->full_barriers[page.slot], page.round);  // no look waits for another
      page.next();
    }
    return all;
  }
  // Waits until they have arrived.
  MACO_FN void await(int count) {
    PageUse page = {slot, round};
    for (int p = 0; p < count; ++p) {
      if (!is_full(&memory->full_barriers[page.slot], page.round))
        page_await(ctx, page.slot, page.round, index + (u32)p);
      page.next();
    }
  }
  // The same for a number that isn't known when compiling: one copy of the code.
  MACO_FN void await_some(int count) {
    PageUse page = {slot, round};
    MACO_ROLLED
    for (int p = 0; p < count; ++p) {
      if (!is_full(&memory->full_barriers[page.slot], page.round))
        page_await(ctx, page.slot, page.round, index + (u32)p);
      page.next();
    }
  }
  // The next page, whether it has arrived or not.
  MACO_FN PageUse next_page() const { return {slot, round}; }
  // Takes the next page, which has arrived.
  MACO_FN PageUse take_landed() {
    PageUse page = {slot, round}, behind = page;
    behind.next();
    slot = behind.slot;
    round = behind.round;
    ++index;
    return page;
  }
  // Releases the empty pages up to a slot that is a multiple of `group`.
  MACO_FN void align(u32 group) {
    while (slot % group != 0) {
      await(1);
      release_page(take_landed());
    }
  }
  MACO_FN const char* page(PageUse use) const { return pages + (i64)use.slot * Cta::kPageBytes; }
  // Takes one of the pages for which `await` has waited.
  MACO_FN const char* take_awaited() { return page(take_landed()); }
  MACO_FN const char* take() {
    await(1);
    return take_awaited();
  }
  // Releases the page that was taken first of those still held; or any page, if the task releases
  // all of its pages in this way.
  MACO_FN void release() { release_page(held); }
  MACO_FN void release_page(PageUse page) {
    page_let_go(memory, page);
    held.next();
  }
  // Releases the first `count` pages of those still held, at once.
  MACO_FN void release_together(int count) {
    warp_sync();
    MACO_ROLLED
    for (int i = warp_lane(); i < count; i += kWarpLanes) {
      const PageUse page = held.behind((u32)i);
      empty_barrier_arrive(&memory->empty_barriers[page.slot], page.round);
    }
    held = held.behind((u32)count);
  }
  // Stores the state in the context.
  MACO_FN void finish() {
    ctx.page_index = index;
    ctx.page_slot = slot;
    ctx.page_round = round;
    ctx.pages_released = index;
  }
};

// Consumers: the next page, or nullptr (for all threads) if the run stops. Has a barrier inside.
// Several pages may be held.
MACO_FN const char* page_wait(Context& ctx) {
  u32 slot = ctx.page_slot, round = ctx.page_round;
  const u32 index = ctx.page_index;
  bool ok = true;
  if (!is_full(&ctx.memory()->full_barriers[slot], round)) ok = page_await(ctx, slot, round, index);
  if (cta_any(!ok)) return nullptr;
  const char* page = ctx.pages() + (i64)slot * Cta::kPageBytes;
  if (++slot == kRingPages) {
    slot = 0;
    ++round;
  }
  ctx.page_slot = slot;
  ctx.page_round = round;
  ctx.page_index = index + 1;
  return page;
}

// Consumers: releases the first page that was awaited and not yet released. Has a barrier inside.
MACO_FN void page_release(Context& ctx) {
  const u32 index = ctx.pages_released;
  cta_sync();
  ctx.pages_released = index + 1;
  page_let_go(ctx.memory(), index);
}

}  // namespace maco
