// sync.cuh: waits and signals of tasks. Every wait is bounded. A signal includes its release.

namespace maco {

// How many quarters of the time-out a wait lasts without progress. A CTA reports the first wait
// that expires, which should be the cause. So waits of consumers expire before the loader's, which
// follow from them, and waits for this rank before waits for other ranks, which run the same
// Program and may be stuck in the same place.
enum Patience : int {
  kPatienceLocal = 4,
  kPatienceOther = 5,   // for other ranks; and consumers that wait for a page
  kPatienceLoader = 7,  // loaders that wait for the CTA's consumers
};

// What a wait knows of its deadline, once it has lasted a while.
struct WatchState {
  int quarters_left;  // until the deadline
  // How many looks still ignore an abort, so that waits that are more likely the cause end first.
  int abort_looks;
  u32 stopped_by = 0;  // the abort word's value
  u64 since = 0;
  u32 beats = 0;
  MACO_FN explicit WatchState(int patience)
      : quarters_left(patience), abort_looks(2 * (patience - kPatienceLocal)) {}
};

MACO_FN u32 all_heartbeats(const Context& ctx) {
  u32 sum = 0;
  for (int r = 0; r < ctx.world; ++r) sum += load_relaxed(&ctx.control(r)->heartbeat);
  return sum;
}

// Not inlined where functions may be called: it would cost registers in every wait loop.
MACO_OP bool watch_look(Context& ctx, WatchState& watch, int quarters) {
  if (ctx.stopped()) return false;
  u32 abort = load_acquire_sys(&ctx.control(ctx.rank())->abort);
  if (abort != 0) {
    if (watch.abort_looks-- > 0) return true;
    watch.stopped_by = abort;
    return false;
  }
  u64 now = now_ns();
  if (watch.since == 0) {
    watch.since = now;
    watch.beats = all_heartbeats(ctx);
  } else if (now - watch.since > ctx.launch().timeout_ns / 4) {
    u32 beats = all_heartbeats(ctx);
    if (beats != watch.beats) {
      watch.beats = beats;
      watch.quarters_left = quarters;
    } else if (--watch.quarters_left <= 0) {
      return false;
    }
    watch.since = now;
  }
  return true;
}

// Bounds a wait. The deadline counts the time in which no rank's heartbeat moved, checked in
// quarters. Its state is a variable of its own, in memory; what each look at the word needs is in
// registers.
struct Watch {
  Context& ctx;
  WatchState& state;
  const void* word;
  const u32 kind, event;  // for the report: what is waited for, and of which rank (-1: this one)
  int source;
  const int quarters;
  u32 spins = 0;

  MACO_FN Watch(Context& c, WatchState& s, const void* w, Patience patience, u32 k, u32 e = 0,
                int src = -1)
      : ctx(c), state(s), word(w), kind(k), event(e), source(src), quarters(patience) {}

  // Called after a look at the word in vain. Returns false if the wait is over, because the run
  // stops or the deadline passed; `give_up` comes next. rests: the wait is for something slower
  // than a hand-off, and each look costs power that others could use.
  MACO_FN bool again(bool rests = false) {
    ++spins;
    if (spins % kSpinsPerLook == 0) {
      if (spins == kSpinsPerLook) state = WatchState(quarters);
      if (!watch_look(ctx, state, quarters)) return false;
    }
    pause_for(word, rests ? spins + kSpinsAwake : spins);
    return true;
  }
  // Records for what the wait was.
  MACO_FN void give_up(u32 expected, u32 seen) {
    stop_run(ctx, kind, event, source, expected, seen, state.stopped_by, 0, 0);
  }
};

MACO_FN bool reached(u32 seen, u32 target) { return (i32)(seen - target) >= 0; }

// Whether `row`, in a task of rank `rank`, means rank `other`.
MACO_FN bool means(const SyncRow& row, int rank, int other, int world) {
  switch (row.who) {
    case kWhoSelf: return other == rank;
    case kWhoOthers: return other != rank;
    case kWhoAll: return true;
    case kWhoRank: return other == row.n;
    default: return other == ((rank + row.n) % world + world) % world;
  }
}

// The word of a peer event on rank `on` that rank `source` stores.
MACO_FN u32* peer_word(const Context& ctx, i64 peer_words_at, u32 event, int on, int source) {
  return (u32*)(ctx.symmetric(on) + peer_words_at) + (i64)event * ctx.world + source;
}

// Loads a counter of the rank, at the scope of its event.
MACO_FN u32 load_acquire_counter(bool sys, const u32* word) {
  return sys ? load_acquire_sys(word) : load_acquire_gpu(word);
}
MACO_FN void add_release_counter(bool sys, u32* word) {
  if (sys)
    add_release_sys(word, 1);
  else
    add_release_gpu(word, 1);
}

// The word for which a thread waits, if any.
struct Awaited {
  const u32* word = nullptr;
  u32 target = 0, kind = kWaitLocal, event = 0;
  int source = -1;
  bool sys = false, relaxed = false;
  Patience patience = kPatienceLocal;
};
template <class Kernel>
MACO_FN Awaited awaited(const Context& ctx, const SyncRow& row, int source) {
  Awaited a;
  a.event = row.event;
  a.sys = Kernel::kSysCounters && row.kind == kSyncLocalSys;
  a.relaxed = Kernel::kHints && row.kind == kSyncHint;
  if (row.kind == kSyncLocal || a.sys || a.relaxed) {
    if (source != 0) return a;
    a.word = ctx.launch().counters + row.event;
    a.target = (ctx.epoch() - row.lag) * row.count;
    if (a.relaxed) a.target -= (u32)row.n;
  } else if (Kernel::kPeerEvents > 0 && row.kind == kSyncPeer &&
             means(row, ctx.rank(), source, Kernel::kWorld)) {
    a.word = peer_word(ctx, Kernel::kSymmetricBytes, row.event, ctx.rank(), source);
    a.target = ctx.epoch() - row.lag;
    a.sys = true;
    a.kind = kWaitPeer;
    a.source = source;
    a.patience = kPatienceOther;
  }
  return a;
}
// The lanes of a warp look together until none waits. If some lanes left earlier, the compiler
// would let the warp go on in parts through all of the task (seen in sm_90's code: shuffles then
// take many times as long, and so do tasks of few instructions).
template <class Kernel>
MACO_FN bool await_together(Context& ctx, const Awaited& a) {
  const bool sys = (Kernel::kSysCounters || Kernel::kPeerEvents > 0) && warp_any(a.sys);
  const bool acquires = !Kernel::kHints || warp_any(a.word != nullptr && !a.relaxed);
  WatchState state(0);
  Watch watch(ctx, state, a.word, a.patience, a.kind, a.event, a.source);
  bool waits = a.word != nullptr;
  while (true) {
    u32 seen = 0;
    if (waits) {
      seen = acquires ? load_acquire_counter(sys, a.word) : load_relaxed(a.word);
      waits = !reached(seen, a.target);
    }
    if (!warp_any(waits)) return true;
    const bool goes_on = watch.again() || !waits;
    if (!warp_any(!goes_on)) continue;
    if (!goes_on) watch.give_up(a.target, seen);
    return false;
  }
}

// The threads poll the task's waits, one source each. Returns false to threads that gave up; the
// caller makes that uniform with the barrier that rule 2 requires. row(i): the row of wait i.
template <class Kernel, class Row>
MACO_FN bool wait_for(Context& ctx, int waits, Row row) {
  constexpr int kWorld = Kernel::kWorld;
  const int items = waits * kWorld;
  for (int first = warp() * kWarpLanes; first < items; first += kConsumers) {
    const int item = first + warp_lane();
    Awaited a;
    if (item < items) a = awaited<Kernel>(ctx, row(item / kWorld), item % kWorld);
    if (!await_together<Kernel>(ctx, a)) return false;
  }
  return true;
}

// The same for one warp that runs ahead of the consumers: it looks without acquires, which would
// invalidate their cache, until everything is there. Reports nothing: the consumers will wait for
// the same.
template <class Kernel>
MACO_FN bool scout_for(Context& ctx, int waits, const SyncRow* rows) {
  constexpr int kWorld = Kernel::kWorld;
  const int items = waits * kWorld;
  for (int first = 0; first < items; first += kWarpLanes) {
    const int item = first + warp_lane();
    Awaited a;
    if (item < items) a = awaited<Kernel>(ctx, table_load(rows + item / kWorld), item % kWorld);
    WatchState state(0);
    Watch watch(ctx, state, a.word, kPatienceLoader, a.kind);
    bool waits_on = a.word != nullptr;
    while (true) {
      if (waits_on && reached(load_relaxed(a.word), a.target))
        waits_on = !reached(load_acquire_counter(a.sys, a.word), a.target);
      if (!warp_any(waits_on)) break;
      if (warp_any(ctx.stopped() || !watch.again(true))) return false;
    }
  }
  return true;
}

// Stores a signal on rank `to`, if it has one there: a release at the event's scope. All writes of
// the task have happened before.
template <class Kernel>
MACO_FN void signal(Context& ctx, const SyncRow& row, int to, bool local_only) {
  const bool sys = Kernel::kSysCounters && row.kind == kSyncLocalSys;
  if (row.kind == kSyncLocal || sys) {
    if (to == 0) add_release_counter(sys, ctx.launch().counters + row.event);
  } else if (Kernel::kHints && row.kind == kSyncHint) {
    if (to == 0) add_relaxed(ctx.launch().counters + row.event, 1);
  } else if (row.kind == kSyncPeer && !local_only && means(row, ctx.rank(), to, Kernel::kWorld)) {
    store_release_sys(peer_word(ctx, Kernel::kSymmetricBytes, row.event, to, ctx.rank()),
                      ctx.epoch());
  }
}

// Marks the counter of a hint among those of events, by a bit that addresses of words don't have;
// and removes the mark.
MACO_FN u32* hinted(u32* word) { return (u32*)((u64)word ^ 1); }
MACO_FN bool is_hinted(u32* word) { return ((u64)word & 1) != 0; }

// Consumers, after a barrier behind all writes of the task. `words`: what stage_signals has looked
// up, or nullptr.
template <class Kernel>
MACO_FN void signal_all(Context& ctx, u32* const* words, const SyncRow* rows, int signals,
                        bool local_only) {
  constexpr int kWorld = Kernel::kWorld;
  for (int item = consumer_thread(); item < signals * kWorld; item += kConsumers) {
    int to = item % kWorld;
    if (u32* word = words && item / kWorld < kStagedSignals ? words[item / kWorld] : nullptr) {
      if (to != 0) continue;
      if (is_hinted(word))
        add_relaxed(hinted(word), 1);
      else
        add_release_gpu(word, 1);
      continue;
    }
    signal<Kernel>(ctx, table_load(rows + item / kWorld), to, local_only);
  }
}

// A flag that no packet has while this flag is used.
MACO_FN u32 no_flag(u32 flag) { return flag ^ 0x80000000u; }

// Packets for which a lane waits, H adjacent ones each: where they lie, the rank from which they
// come, and what has arrived.
template <int N, int H>
struct Packets {
  const u64* at[N];
  int source[N];
  bool wanted[N];
  u64 got[N][H] = {};
  MACO_FN void from(int i, const u64* slot, int rank, bool waits = true) {
    at[i] = slot;
    source[i] = rank;
    wanted[i] = waits;
  }
  MACO_FN u32 word(int i, int half) const { return (u32)got[i][half]; }
  MACO_FN u32 flag(int i, int half) const { return (u32)(got[i][half] >> 32); }
  MACO_FN bool arrived(int i, u32 expected) const {
    return ((flag(i, 0) ^ expected) | (flag(i, H - 1) ^ expected)) == 0;
  }
  // Looks at all of them at once; returns whether they have arrived.
  MACO_FN bool packet_load_all(u32 expected) {
    MACO_UNROLL
    for (int i = 0; i < N; ++i) {
      if (!wanted[i]) continue;
      if constexpr (H == 2)
        packet_pair_load(at[i], got[i][0], got[i][1]);
      else
        got[i][0] = packet_load(at[i]);
    }
    bool all = true;
    MACO_UNROLL
    for (int i = 0; i < N; ++i) all &= !wanted[i] || arrived(i, expected);
    return all;
  }
  // One of several looks; a longer wait is bounded by the loop behind them.
  MACO_FN bool look(u32 expected) { return packet_load_all(expected); }
  // Tells `watch` about a packet that hasn't arrived; returns its flag.
  MACO_FN u32 name_missing(Watch& watch, u32 expected) const {
    u32 seen = 0;
    MACO_UNROLL
    for (int i = 0; i < N; ++i) {
      if (!wanted[i] || arrived(i, expected)) continue;
      const bool second = flag(i, 0) == expected;
      watch.word = at[i] + second;
      watch.source = source[i];
      seen = second ? flag(i, H - 1) : flag(i, 0);
    }
    return seen;
  }
};

// Waits until all packets of all lanes of the warp have this flag: whole warps look, as in
// await_together. Returns false, to all lanes, if the run stops; the warp goes on to its next
// barrier without using the data. `operand` is for the report.
template <int N, int H>
MACO_FN bool await_packets(Context& ctx, Packets<N, H>& packets, u32 flag, int operand) {
  bool there = packets.packet_load_all(flag);
  if (!warp_any(!there)) return true;
  WatchState state(0);
  Watch watch(ctx, state, nullptr, kPatienceOther, kWaitPacket, (u32)operand);
  const u64 since = ctx.profile_pause();
  while (true) {
    if (kWarpLanes == 1) packets.name_missing(watch, flag);  // a host's thread waits for a word
    const bool goes_on = watch.again() || there;
    if (warp_any(!goes_on)) {
      if (!goes_on) {
        const u32 seen = packets.name_missing(watch, flag);
        watch.give_up(flag, seen);
      }
      return false;
    }
    there = packets.packet_load_all(flag);
    if (!warp_any(!there)) break;
  }
  ctx.profile_packet(since);
  return true;
}

// The same for one packet, if the lane waits for one. Not inlined, as it rarely runs.
MACO_OP bool await_lone_packet(Context& ctx, const u64* slot, int source, u32 flag, int operand) {
  Packets<1, 1> one;
  one.from(0, slot, source, slot != nullptr);
  return await_packets(ctx, one, flag, operand);
}

// As await_packets, with ask() before each look, which loads what is needed at the same time.
// Mostly all packets come within a few looks; loaded data needn't stay in registers over the
// bounded wait that follows. (A lone thread, which reads its own memory, calls ask() after the
// wait.)
template <int N, int H, class F>
MACO_FN bool await_packets_with(Context& ctx, Packets<N, H>& packets, u32 flag, int operand,
                                F ask) {
  if constexpr (kWarpLanes == 1) {
    if (!await_packets(ctx, packets, flag, operand)) return false;
    ask();
    return true;
  }
  constexpr int kLooksAtOnce = 64;
  u64 since = 0;
  int looks = 0;
  bool waits = false;
  do {
    if (looks == kLooksAtOnce) {
      const u64* missing = nullptr;
      int source = 0;
      MACO_UNROLL
      for (int i = 0; i < N; ++i)
        if (packets.wanted[i] && !packets.arrived(i, flag))
          missing = packets.at[i] + (packets.flag(i, 0) == flag), source = packets.source[i];
      ctx.profile_packet(since);
      if (!await_lone_packet(ctx, missing, source, flag, operand)) return false;
      since = 0;
      looks = 0;
    }
    ask();
    waits = warp_any(!packets.look(flag));
    ++looks;
    if (waits) {
      since = ctx.profile_first_pause(since);
    }
  } while (waits);
  ctx.profile_packet(since);
  return true;
}

// Waits for the packet with this flag; the lanes of a warp wait together. Returns false if the run
// stops; the thread goes on to its next barrier without using `data`. `operand` and `source` are
// for the report.
MACO_FN bool poll_packet(Context& ctx, const u64* slot, u32 flag, u32& data, int operand,
                         int source) {
  Packets<1, 1> one;
  one.from(0, slot, source);
  if (!await_packets(ctx, one, flag, operand)) return false;
  data = one.word(0, 0);
  return true;
}

// For a collective that is handed over to a library beside the kernel (ops/hand_over.cuh), behind
// the barrier at the end of the task's waits: one thread releases to the library what all threads
// of the CTA know.
MACO_FN void raise_handed(Context& ctx, u32 number) {
  if (consumer_thread() == 0) store_release_sys(&ctx.launch().handed[number].ready, 1);
}
// Waits until the library has finished; the barrier at the end of the task tells the other threads.
MACO_OP void await_handed(Context& ctx, u32 number) {
  if (consumer_thread() != 0) return;
  u32* const word = &ctx.launch().handed[number].done;
  WatchState state(0);
  Watch watch(ctx, state, word, kPatienceOther, kWaitHanded, number);
  for (u32 seen = load_acquire_sys(word); seen == 0; seen = load_acquire_sys(word)) {
    if (watch.again()) continue;
    watch.give_up(1, 0);
    break;
  }
  store_relaxed(word, 0);
}

}  // namespace maco
