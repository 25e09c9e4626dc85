// worker.cuh: what a CTA does in a launch. Its consumers run the tasks of its stream, and its
// loader fills pages for them. Its signaller, if it has one, tells others what is done; this takes
// a while, as it waits for the consumers' writes.
//
// `Kernel` is the generated code's description of itself:
//   static constexpr int kWorld, kCtas, kLocalEvents, kPeerEvents;
//   static constexpr i64 kSymmetricBytes;
//   static constexpr u32 kPacketUses;    // flags of a launch's packets
//   static constexpr int kMaps;          // of Launch::maps
//   static constexpr bool kSysCounters;  // is any local event at sys scope?
//   static constexpr bool kHints;        // is any event a hint?
//   static constexpr bool kMates;        // do CTAs come in pairs?
//   static constexpr i64 kPacketBytes;   // of temporaries with packets, at the arena's beginning
//   static const TaskRow* tasks(); const StreamRow* streams(); const CallRow* calls(); const
//   Operand* operands();
//   static const SyncRow* syncs(); const u64* guards(); const u32* local_counts();
//   static void run(int kind, Context&, const Args&, u32 tile);
//   static void load(int kind, Context&, const Args&, u32 tile);   // kinds with a loader side
//   static bool paged(int kind);         // has the kind a loader side?
//   static bool load_ahead(int kind);    // may it run before the task's waits are over?
//   static bool load_apart(int kind);    // does it wait itself until they are (await_passed)?
//   static constexpr bool kSends;        // do some kinds send what they have stored?
//   static void send(int kind, Context&, const SenderArgs&, u32 tile);  // of those that do
//   static bool sends(int kind);
// Guard 0 means all ranks.

namespace maco {

// Looks up the addresses and uses of a call's operands, in threads that don't poll. A barrier of
// the role follows before they are used.
MACO_FN void stage_operands(Context& ctx, LookedUp& found, const Operand* rows, int count, int at,
                            int threads) {
  int staged = count < kStagedOperands ? count : kStagedOperands;
  MACO_ROLLED
  for (int i = threads - 1 - at; i < staged; i += threads) {
    const Operand row = table_load(rows + i);
    found.operands[i] = operand_address(ctx, row);
    found.marks[i] = operand_mark(row);
  }
}

// Looks up the words of the first signals, in threads that neither poll nor look up addresses,
// while there are such threads.
MACO_FN void stage_signals(Context& ctx, u32** words, const SyncRow* rows, int signals) {
  const int staged = signals < kStagedSignals ? signals : kStagedSignals;
  for (int i = (consumer_thread() + kConsumers / 2) % kConsumers; i < staged; i += kConsumers) {
    const SyncRow row = table_load(rows + i);
    u32* const word = ctx.launch().counters + row.event;
    words[i] = row.kind == kSyncLocal ? word : row.kind == kSyncHint ? hinted(word) : nullptr;
  }
}

template <class Kernel>
MACO_FN bool runs_here(const Context& ctx, u32 guard) {
  return guard == 0 || ((table_load(Kernel::guards() + guard) >> ctx.rank()) & 1) != 0;
}

// The CTA's tasks [begin, end), and the first task.
struct Stream {
  u32 begin, end;
  CallRow call;
  TaskWords task;
};
template <class Kernel>
MACO_FN Stream stream_of() {
  const StreamRow* at = Kernel::streams() + cta_id();
  const RowWords head = table_load((const RowWords*)at);
  return {head.words[0], head.words[1],
          CallRow{head.words[2], (u16)head.words[3], (u16)(head.words[3] >> 16)},
          table_load((const TaskWords*)&at->task)};
}

template <class Kernel>
MACO_FN TaskWords task_words(u32 at) {
  return table_load((const TaskWords*)(Kernel::tasks() + at));
}

// Sends this thread's part of what a task has stored.
template <class Kernel>
MACO_FN void send_part(Context& ctx, u32 call, u32 tile) {
  const CallRow row = table_load(Kernel::calls() + call);
  Kernel::send(row.kind, ctx, SenderArgs{ctx, Kernel::operands() + row.first_operand}, tile);
}

// Sends what a task of this rank has stored, if its kind sends; its signals follow. Returns false,
// to all lanes of the signaller, if the run stops.
template <class Kernel>
MACO_FN bool send_task(Context& ctx, const Task& task, u32& turn) {
  if constexpr (Kernel::kSends) {
    if (!Kernel::sends(table_load(Kernel::calls() + task.call).kind)) return true;
    CtaMemory* const memory = ctx.memory();
    ++turn;
    if (kSendWarps > 0 && warp_lane() == 0) {
      memory->send_call = task.call;
      memory->send_tile = task.tile;
      store_release_cta(&memory->send_turn, turn);
    }
    trace_task_begin(ctx.place);
    send_part<Kernel>(ctx, task.call, task.tile);
    trace_task_end(ctx.place);
    if constexpr (Cta::kSignallers == 0) {
      cta_sync();
    } else {
      warp_sync();
      for (int w = 0; w < kSendWarps; ++w)
        if (!await_quietly(ctx, &memory->sent[w], turn)) return false;
    }
  }
  return true;
}

// The loop of warps behind the signaller: they send their parts, and only read the signaller's
// context, until the signaller says that there is nothing more.
enum : u32 { kNoCall = ~0u };
template <class Kernel>
MACO_FN void send_parts(Context& ctx) {
  CtaMemory* const memory = ctx.memory();
  for (u32 turn = 1;; ++turn) {
    if (!await_quietly(ctx, &memory->send_turn, turn)) return;
    if (memory->send_call == kNoCall) return;
    send_part<Kernel>(ctx, memory->send_call, memory->send_tile);
    warp_sync();
    if (warp_lane() == 0) store_release_cta(&memory->sent[spare_warp() - 1], turn);
  }
}
template <class Kernel>
MACO_FN void end_sends(Context& ctx, u32 turn) {
  if (Kernel::kSends && kSendWarps > 0 && warp_lane() == 0) {
    ctx.memory()->send_call = kNoCall;
    store_release_cta(&ctx.memory()->send_turn, turn + 1);
  }
}

// The consumers' loop in kernels without a signaller: consumers also signal.
template <class Kernel>
MACO_FN void consume(Context& ctx, const Stream& stream) {
  const u32 begin = stream.begin, end = stream.end;
  if (begin == end) return;
  ctx.profile_cta(ctx.launch(), ctx.cta(), true);
  // Rows of coming tasks are loaded while one waits or works, as they mostly lie in far memory.
  const auto task_row = [end = end](u32 at) { return task_words<Kernel>(at < end ? at : end - 1); };
  const auto call_row = [](const TaskWords& row) {
    return table_load(Kernel::calls() + row.call());
  };
  TaskWords next = stream.task, after = task_row(begin + 1);
  CallRow next_call = stream.call;
  u32 turn = 0;  // how many tasks have run
  u32 sends = 0;
  u32** signals = nullptr;
  for (u32 at = begin; at < end; ++at) {
    ctx.profile_begin();
    const Task row = next.task();
    const CallRow call = next_call;
    next = after;
    next_call = call_row(next);
    after = task_row(at + 2);
    ctx.place = (int)(at - begin);
    ctx.call = row.call;
    ctx.tile = row.tile;
    ctx.sent_flag = row.packets ? ctx.first_flag : no_flag(ctx.first_flag);
    const SyncRow* sync = Kernel::syncs() + row.sync;
    const bool runs = runs_here<Kernel>(ctx, row.guard);
    if (runs) {
      const Operand* operands = Kernel::operands() + call.first_operand;
      signals = ctx.memory()->signals[turn++ & 1];
      trace_task_begin(ctx.place);
      stage_operands(ctx, ctx.memory()->found[0], operands, call.operands, consumer_thread(),
                     kConsumers);
      stage_signals(ctx, signals, sync + row.waits, row.signals);
      const bool ok = was_scouted(ctx) ||
                      wait_for<Kernel>(ctx, row.waits, [&](int i) { return table_load(sync + i); });
      if (cta_any(!ok)) return;
      ctx.profile_waited();
      if (Cta::kPages > 0 && consumer_thread() == 0 && Kernel::paged(call.kind) &&
          !Kernel::load_ahead(call.kind)) {
        store_release_cta(&ctx.memory()->passed, (u32)ctx.place + 1);
      }
      warp_sync();  // as in await_together: a warp in parts would stay so
      Kernel::run(call.kind, ctx, Args{ctx, operands}, row.tile);
      warp_sync();
      if (ctx.any_stopped()) return;
      ctx.profile_computed();
      trace_task_end(ctx.place);
      send_task<Kernel>(ctx, row, sends);
    }
    signal_all<Kernel>(ctx, runs ? signals : nullptr, sync + row.waits, row.signals, !runs);
    if (consumer_thread() == 0) {
      add_relaxed(&ctx.control(ctx.rank())->heartbeat, 1);
      if (kLoaderScouts) store_release_cta(&ctx.memory()->done, at - begin + 1);
    }
    ctx.profile_signalled(ctx.launch(), at);
  }
  ctx.profile_cta(ctx.launch(), ctx.cta(), false);
}

// Functions of prepared.cuh, for kernels with a signaller, which prepares tasks.
template <class Kernel>
MACO_FN void begin_prepared(Context& ctx);
template <class Kernel>
MACO_FN void consume_prepared(const Stream& stream);
template <class Kernel>
MACO_FN void signal_prepared(Context& ctx, const Stream& stream);
template <class Kernel>
MACO_FN const LookedUp* prepared_operands(const Context& ctx);
template <class Kernel>
MACO_FN void past_prepared(Context& ctx, u32 tasks);

// Waits, without the consumers, until the waits of the task at `place` are over and what earlier
// tasks of the CTA write for its loader is there. The caller must have called it for all tasks
// before. Returns false if the run stops. (If other CTAs' tasks write what the loader reads, a wait
// of this stream, in this task or an earlier one, covers that: only the CTA's own tasks need no
// wait.)
template <class Kernel>
MACO_FN bool scout_task(Context& ctx, const Task& task, u32 place) {
  if (!scout_for<Kernel>(ctx, (int)task.waits, Kernel::syncs() + task.sync)) return false;
  return task.writer == 0 || await_quietly(ctx, &ctx.memory()->done, place - task.writer + 1);
}
// Whether the loader waits for the scout, or the consumers, before or while it loads such tasks.
template <class Kernel>
MACO_FN bool loads_behind(int kind) {
  return Kernel::paged(kind) && !Kernel::load_ahead(kind);
}
MACO_FN bool is_scout() { return kHasScout && is_spare() && spare_warp() == kSpareWarps; }
template <class Kernel>
MACO_FN void scout_tasks(Context& ctx, const Stream& stream) {
  const u32 begin = stream.begin, end = stream.end;
  for (u32 at = begin; at < end; ++at) {
    const Task row = task_words<Kernel>(at).task();
    if (!runs_here<Kernel>(ctx, row.guard)) continue;
    if (!scout_task<Kernel>(ctx, row, at - begin)) return;
    warp_sync();
    if (warp_lane() == 0) store_release_cta(&ctx.memory()->scouted, at - begin + 1);
  }
}

template <class Kernel>
MACO_FN void load_pages(Context& ctx, const Stream& stream) {
  const u32 begin = stream.begin, end = stream.end;
  if (begin == end) return;
  for (int i = loader_thread(); i < Kernel::kMaps; i += kLoaders) map_begin(ctx.launch().maps + i);
  warp_sync();
  const auto task_row = [end = end](u32 at) { return task_words<Kernel>(at < end ? at : end - 1); };
  TaskWords next = stream.task, after = task_row(begin + 1);
  CallRow next_call = stream.call;
  [[maybe_unused]] u32 scouted = begin;
  for (u32 at = begin; at < end; ++at) {
    const Task row = next.task();
    const CallRow call = next_call;
    // Loads the next task while this task's pages are filled.
    next = after;
    next_call = table_load(Kernel::calls() + next.call());
    after = task_row(at + 2);
    // In a slot of a prepared task the loader reads only what it loads for, and nothing later.
    if constexpr (Cta::kPrepared > 0) past_prepared<Kernel>(ctx, at - begin);
    if (!Kernel::paged(call.kind) || !runs_here<Kernel>(ctx, row.guard)) continue;
    ctx.place = (int)(at - begin);
    ctx.call = row.call;
    ctx.tile = row.tile;
    trace_task_begin(ctx.place);
    if (loads_behind<Kernel>(call.kind) && !Kernel::load_apart(call.kind)) {
      const bool scouts = kLoaderScouts && loader_scouts();
      for (; scouts && scouted <= at; ++scouted) {
        const Task before = task_words<Kernel>(scouted).task();
        if (runs_here<Kernel>(ctx, before.guard) &&
            !scout_task<Kernel>(ctx, before, scouted - begin))
          return;
        store_release_cta(&ctx.memory()->scouted, scouted - begin + 1);
      }
      if (!scouts && warp_any(!await_passed(ctx))) return;
    }
    ctx.profile_begin();
    const Operand* operands = Kernel::operands() + call.first_operand;
    // Mostly the signaller has looked the operands up already: that takes two trips to far memory,
    // during which nothing would be loaded.
    const LookedUp* found = nullptr;
    if constexpr (Cta::kPrepared > 0) found = prepared_operands<Kernel>(ctx);
    if (!found) {
      LookedUp& own = ctx.memory()->found[kPrepared > 0 ? 0 : 1];
      stage_operands(ctx, own, operands, call.operands, loader_thread(), kLoaders);
      found = &own;
    }
    warp_sync();
    Kernel::load(call.kind, ctx, Args{ctx, operands, Args::place_of(*found)}, row.tile);
    if (warp_any(ctx.stopped())) return;
    warp_sync();
    ctx.profile_filled(ctx.launch(), at);
    trace_task_end(ctx.place);
  }
  if constexpr (Cta::kPrepared > 0) past_prepared<Kernel>(ctx, end - begin);
}

// Runs the thread's role. Each role looks its context up: if the address were passed on, it would
// take a register in every task.
template <class Kernel>
MACO_FN void play_role(const Stream& stream) {
  if (!is_loader()) {
    take_registers<Cta::kConsumerRegisters>();
    if constexpr (Cta::kPrepared > 0)
      consume_prepared<Kernel>(stream);
    else
      consume<Kernel>(context_of(warp()), stream);
  } else if constexpr (Cta::kPages > 0 || Cta::kSignallers > 0) {
    give_registers<Cta::kLoaderRegisters>();
    if (is_scout()) {
      if constexpr (kHasScout) scout_tasks<Kernel>(context_of(kSignallerContext), stream);
      return;
    }
    if (is_spare()) {
      if constexpr (Kernel::kSends && kSendWarps > 0)
        send_parts<Kernel>(context_of(kSignallerContext));
      return;
    }
    if (is_signaller()) {
      if constexpr (Cta::kPrepared > 0)
        signal_prepared<Kernel>(context_of(kSignallerContext), stream);
      return;
    }
    if constexpr (Cta::kPages > 0) {
      load_pages<Kernel>(context_of(kLoaderContext), stream);
      copies_drain();
    }
  }
}

template <class Kernel>
constexpr i64 kControlAt =
    control_offset(Kernel::kSymmetricBytes, Kernel::kPeerEvents, Kernel::kWorld);

template <class Kernel>
MACO_FN void worker(const Launch& launch) {
  static_assert(Kernel::kWorld <= Cta::kWorld, "the CTA's shared memory has room");
  // The tables exist already, in far memory.
  const Stream stream = stream_of<Kernel>();
  if (initializes()) {
    const Task first = stream.task.task();
    prefetch_near(Kernel::operands() + stream.call.first_operand);
    prefetch_near(Kernel::syncs() + first.sync);
    prefetch_near(Kernel::tasks() + stream.begin + 1);
    prefetch_near(launch.tensors);
  }
  follow_launch();
  auto* memory = (CtaMemory*)cta_memory();
  LaunchState* const state = own_state(launch);
  const bool is_told = initializes() || kLaunchCopies > 1;
  const u32 epoch = state ? state->epoch + 1 : launch.epoch;
  const Told<Kernel> told(launch);
  Advance<Kernel> advance;
  if (state && is_told) advance.ask(launch, *state);
  // Spare warps, and warps that prepare tasks, share the signaller's context: they write the same
  // values there, and nothing later.
  Context& ctx = *new (memory->contexts[is_signaller() || is_spare() ? kSignallerContext
                                        : is_loader()                ? kLoaderContext
                                                                     : warp()])
                     Context(Kernel::kWorld, kControlAt<Kernel>, epoch * Kernel::kPacketUses);
  told.keep(ctx.launch(), memory->symmetric);
  bool runs = true;
  if (is_told) {
    CtaLaunch& to = ctx.launch();
    (LaunchPlaces&)to = launch;
    to.all_values = state ? state->values : launch.values;
    to.epoch = epoch;
    if (state) runs = advance.values(launch, *state, to, state == launch.state);
  }
  if (initializes()) {
    lead_launch();
    ctx.memory()->refused = runs ? 0 : 1;
    ctx.memory()->stop = ctx.memory()->passed = ctx.memory()->reported = ctx.memory()->done = 0;
    ctx.memory()->scouted = 0;
    ctx.memory()->send_turn = 0;
    for (u32& offer : ctx.memory()->mate_offers) offer = 0;
    for (u32& sent : ctx.memory()->sent) sent = 0;
    if constexpr (Cta::kPrepared > 0) begin_prepared<Kernel>(ctx);
    for (int i = 0; i < Cta::kPages; ++i) {
      full_barrier_init(&ctx.memory()->full_barriers[i]);
      empty_barrier_init(&ctx.memory()->empty_barriers[i]);
    }
  }
  if constexpr (Kernel::kMates) pair_sync();  // the other CTA's barriers are visible, too
  start_sync();
  if (state) {
    if (is_told) advance.keep(*state);
    if constexpr (kLaunchCopies == 1) {
      runs = memory->refused == 0;
      // One CTA may have seen an abort that the other hasn't.
      if constexpr (Kernel::kMates) runs = runs && mate_load(&memory->refused) == 0;
    }
  }
  if (runs) play_role<Kernel>(stream);
  // No CTA exits while the other may still write to its memory. (In a run that stops, what is in
  // flight arrives meanwhile.)
  if constexpr (Kernel::kMates) pair_sync();
}

// Runs before the first launch, and after one that stopped, while no rank runs. Leaves memory as if
// launch (epoch - 1) had ended everywhere. No slot keeps a flag that one of the next 2^31 /
// kPacketUses launches could take for its own; the host resets again before that.
template <class Kernel>
MACO_FN void reset_memory(const Launch& launch) {
  const i64 first = grid_thread(), step = grid_threads();
  const u32 before = launch.epoch - 1;
  char* own = launch.symmetric[launch.rank];
  for (i64 i = first; i < Kernel::kLocalEvents; i += step) {
    store_relaxed(launch.counters + i, before * table_load(Kernel::local_counts() + i));
  }
  for (i64 i = first; i < Kernel::kSymmetricBytes / 4; i += step)
    store_relaxed((u32*)own + i, no_flag(launch.epoch * Kernel::kPacketUses));
  // Neither half of the word is the next launch's flag, nor is the whole word.
  const u32 other = (launch.epoch ^ 0x8000u) & 0xffffu;
  for (i64 i = first; i < Kernel::kPacketBytes / 4; i += step)
    store_relaxed((u32*)launch.arena + i, other << 16 | other);
  u32* words = (u32*)(own + Kernel::kSymmetricBytes);
  for (i64 i = first; i < (i64)Kernel::kPeerEvents * Kernel::kWorld; i += step)
    store_relaxed(words + i, before);
  for (i64 i = first; i < (i64)sizeof(Control) / 4; i += step)
    store_relaxed((u32*)(own + kControlAt<Kernel>)+i, 0);
}

}  // namespace maco
