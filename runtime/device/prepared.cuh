// prepared.cuh: in kernels with a signaller, the signaller looks tasks up ahead. Rows of tables lie
// in far memory, one behind the other. A consumer that waits for the next task finds it in shared
// memory, and keeps nothing of it in registers during a task.
//
// A slot of CtaMemory::tasks belongs to the consumers and the loader from `ready` on. Once they are
// `done`, it belongs to the signaller. It is free for another task once the signaller has
// `signalled` and the loader `filled` all that it has for the task. If tasks are short, looking the
// next one up takes longer than a task and would delay signals: other warps do it, in turn.

namespace maco {

// Whether the signallers include warps that prepare tasks and do nothing else.
constexpr bool kPreparesApart = kWarpLanes > 1 && Cta::kSignallers > kWarpLanes;
constexpr u32 kPreparers = kPreparesApart ? Cta::kSignallers / kWarpLanes - 1 : 1;

template <class Kernel>
MACO_FN void begin_prepared(Context& ctx) {
  ctx.memory()->ready = 0;
  ctx.memory()->signalled = 0;
  ctx.memory()->filled = 0;
}

// Whether the task at `place` is prepared.
MACO_FN bool is_prepared(const CtaMemory* memory, u32 place) {
  return reached(load_acquire_cta(&memory->ready), place + 1);
}
// Loader: what the signaller has looked up of the task's operands, if it has got so far; all lanes
// get the same answer.
template <class Kernel>
MACO_FN const LookedUp* prepared_operands(const Context& ctx) {
  CtaMemory* const memory = ctx.memory();
  const u32 place = (u32)ctx.place;
  if (warp_any(!is_prepared(memory, place))) return nullptr;
  return &memory->tasks[place % kPrepared].found;
}
// Loader: tells that it has passed so many tasks.
template <class Kernel>
MACO_FN void past_prepared(Context& ctx, u32 tasks) {
  warp_sync();
  if (warp_lane() == 0) store_release_cta(&ctx.memory()->filled, tasks);
}

// A wait or a signal of a prepared task.
template <class Kernel>
MACO_FN SyncRow sync_row(const PreparedTask& task, u32 first, int i) {
  return i < kPreparedSyncs ? task.syncs[i] : table_load(Kernel::syncs() + first + i);
}

// As await_quietly, for counts that usually have been reached already.
MACO_FN bool counted(Context& ctx, const u32* word, u32 count) {
  return !warp_any(!reached(load_acquire_cta(word), count)) || await_quietly(ctx, word, count);
}

// A consumer warp's context, looked up again.
MACO_FN Context& consumer_context() {
  return context_of((int)((u32)task_thread() / (u32)kWarpLanes));
}
// What consumers read of a slot.
struct PreparedRow {
  TaskWords words;
  TaskHead head;
};
MACO_FN PreparedRow prepared_row(const PreparedTask& task) { return {task.words, task.head}; }

// Begins the task at `place`: what consumers need to know during and after it goes into the warp's
// context. The device function needs the registers; and a task pushes data in local memory out of
// the L1 cache, so that it has to come back from far away (docs/notebook/decoding.md, "Between
// tasks").
MACO_FN void begin_task(Context& ctx, u32 place, const PreparedRow& row) {
  const Task task = row.words.task();
  ctx.place = (int)place;
  ctx.notes = row.head.notes;
  ctx.call = task.call;
  ctx.tile = task.tile;
  ctx.sent_flag = task.packets ? ctx.first_flag : no_flag(ctx.first_flag);
  if (consumer_thread() == 0) ctx.memory()->tasks[place % kPrepared].begins(ctx.profile_begun());
  if (row.head.has(TaskHead::kRuns)) trace_task_begin((int)place);
}
// Waits until the task at `place` is prepared, unless its row is `there`, and until its waits are
// over, and begins it. Returns false if the run stops. `row` is set in that case, too: otherwise it
// would be kept in local memory over the task before (tests/e2e/ptxas_test.py).
template <class Kernel>
MACO_FN bool await_task(Context& ctx, u32 place, bool there, PreparedRow& row) {
  CtaMemory* const memory = ctx.memory();
  ctx.profile_begin();
  ctx.place = (int)place;
  bool ok = there || is_prepared(memory, place) || await_place(ctx, &memory->ready, nullptr);
  const PreparedTask& task = memory->tasks[place % kPrepared];
  if (!there) row = ok ? prepared_row(task) : PreparedRow{};
  if (ok) begin_task(ctx, place, row);
  const Task words = row.words.task();
  if (ok && row.head.has(TaskHead::kRuns))
    ok = was_scouted(ctx) || wait_for<Kernel>(ctx, words.waits, [&](int i) {
           return sync_row<Kernel>(task, words.sync, i);
         });
  return !cta_any(!ok);
}
// Runs the task that has begun, if it runs on this rank.
template <class Kernel>
MACO_FN void run_task(Context& ctx, u32 place, const PreparedRow& row) {
  if (!row.head.has(TaskHead::kRuns)) return;
  ctx.profile_waited();
  CtaMemory* const memory = ctx.memory();
  if (Cta::kPages > 0 && row.head.has(TaskHead::kPasses) && consumer_thread() == 0)
    store_release_cta(&memory->passed, place + 1);
  warp_sync();
  const Operand* operands = Kernel::operands() + row.head.first_operand;
  Kernel::run(row.head.kind, ctx,
              Args{ctx, operands, Args::place_of(memory->tasks[place % kPrepared].found)},
              row.words.task().tile);
  warp_sync();
}

// Behind a task's barrier one warp tells the signaller, and gives hints. It is the last warp: the
// first warp has the rows of few elements, and the stamps of a profile, and is at the next task by
// then.
template <class Kernel>
MACO_FN void tell_signaller(const Context& ctx, u32 place) {
  constexpr int kTeller = kWarps - 1;
  if (warp() != kTeller) return;
  CtaMemory* const memory = ctx.memory();
  if constexpr (Kernel::kHints) {
    // The slot may get another task once the signaller knows that this one is done.
    const PreparedTask& task = memory->tasks[place % kPrepared];
    const Task done = task.words.task();
    MACO_ROLLED
    for (int i = warp_lane(); i < (int)done.signals; i += kWarpLanes) {
      const SyncRow signal = sync_row<Kernel>(task, done.sync, (int)done.waits + i);
      if (signal.kind == kSyncHint) add_relaxed(ctx.launch().counters + signal.event, 1);
    }
  }
  warp_sync();
  if (warp_lane() == 0) store_release_cta(&memory->done, place + 1);
}

// As consume, for prepared tasks. A warp looks up where it is again behind each task: values kept
// over a task would lie in local memory.
template <class Kernel>
MACO_FN void consume_prepared(const Stream& stream) {
  const u32 begin = stream.begin;
  if (begin == stream.end) return;
  Context::profile_cta(Context::launch(), cta_id(), true);
  PreparedRow row;
  u32 place = 0, notes = 0;
  bool there = false, begins = false;
  do {
    if (!begins && !await_task<Kernel>(consumer_context(), place, there, row)) return;
    run_task<Kernel>(consumer_context(), place, row);
    Context& ctx = consumer_context();
    CtaMemory* const memory = ctx.memory();
    place = (u32)ctx.place;
    notes = ctx.notes;
    const bool stopped = ctx.stopped();
    // Loads the next task's row meanwhile, if that is prepared. (Otherwise it loads this task's
    // row, which isn't used, so that `row` is set.) If the next task waits for nothing, one barrier
    // is enough.
    there = is_prepared(memory, place + 1);
    row = prepared_row(memory->tasks[(place + (there ? 1 : 0)) % kPrepared]);
    const bool leads = (notes & TaskHead::kLeads) != 0;
    // Whether some thread has seen a stop, or hasn't seen that the next task is prepared. Another
    // barrier tells which.
    const bool held = cta_any(stopped || (leads && !there));
    if (held && (!leads || ctx.any_stopped())) return;
    if ((notes & TaskHead::kRuns) != 0) {
      ctx.profile_computed();
      trace_task_end((int)place);
    }
    tell_signaller<Kernel>(ctx, place);
    ctx.profile_stored(ctx.launch(), begin + place);
    ++place;
    begins = leads && !held;
    if (begins) {
      ctx.profile_begin();
      begin_task(ctx, place, row);
    }
  } while ((notes & TaskHead::kLast) == 0);
  Context::profile_cta(Context::launch(), cta_id(), false);
}

// Looks tasks up ahead; each of several warps takes every kPreparers-th task. Stores the results in
// the CTA's memory. The rows of its next two tasks are loaded meanwhile.
template <class Kernel>
struct Preparer {
  // A lane's share of a task's rows.
  static constexpr int kOperands = (kStagedOperands + kWarpLanes - 1) / kWarpLanes;
  static constexpr int kSyncs = (kPreparedSyncs + kWarpLanes - 1) / kWarpLanes;
  Context& ctx;
  const u32 begin, end;
  u32 at;  // the next task to prepare
  TaskWords words, next, after;
  TaskWords behind;  // of the task after `at`, which another warp may prepare
  CallRow call, next_call;
  RowWords operands[kOperands] = {};
  RowWords syncs[kSyncs] = {};

  MACO_FN Preparer(Context& c, const Stream& stream, u32 own)
      : ctx(c),
        begin(stream.begin),
        end(stream.end),
        at(own),
        words(own == stream.begin ? stream.task : words_of(own)),
        next(words_of(at + kPreparers)),
        after(words_of(at + 2 * kPreparers)),
        call(own == stream.begin ? stream.call : call_of(words)),
        next_call(call_of(next)) {
    look_up();
  }
  MACO_FN TaskWords words_of(u32 task) const {
    return task_words<Kernel>(task < end ? task : end - 1);
  }
  static MACO_FN CallRow call_of(const TaskWords& task) {
    return table_load(Kernel::calls() + task.call());
  }
  MACO_FN int operand_count() const {
    return call.operands < kStagedOperands ? call.operands : kStagedOperands;
  }
  static MACO_FN int sync_count(const Task& task) {
    const int all = (int)(task.waits + task.signals);
    return all < kPreparedSyncs ? all : kPreparedSyncs;
  }
  MACO_FN void look_up() {
    const Task task = words.task();
    MACO_UNROLL
    for (int k = 0; k < kOperands; ++k)
      if (const int i = warp_lane() + k * kWarpLanes; i < operand_count())
        operands[k] = table_load((const RowWords*)(Kernel::operands() + call.first_operand) + i);
    MACO_UNROLL
    for (int k = 0; k < kSyncs; ++k)
      if (const int i = warp_lane() + k * kWarpLanes; i < sync_count(task))
        syncs[k] = table_load((const RowWords*)(Kernel::syncs() + task.sync) + i);
    behind = kPreparers > 1 ? words_of(at + 1) : next;
  }
  // Whether the loader, too, has passed the task whose slot comes next. Mostly it has; otherwise it
  // soon will, as the consumers have passed that task.
  MACO_FN bool is_free() const {
    return Cta::kPages == 0 || at - begin < kPrepared ||
           !warp_any(!reached(load_acquire_cta(&ctx.memory()->filled), filled_before()));
  }
  MACO_FN u32 filled_before() const { return at - begin - kPrepared + 1; }
  // Returns false, to all lanes, if the run stops.
  MACO_FN bool prepare() {
    CtaMemory* const memory = ctx.memory();
    if (!is_free() && !await_quietly(ctx, &memory->filled, filled_before())) return false;
    PreparedTask& to = memory->tasks[(at - begin) % kPrepared];
    const Task task = words.task();
    MACO_UNROLL
    for (int k = 0; k < kOperands; ++k)
      if (const int i = warp_lane() + k * kWarpLanes; i < operand_count()) {
        const Operand operand = operands[k].template as<Operand>();
        to.found.operands[i] = operand_address(ctx, operand);
        to.found.marks[i] = operand_mark(operand);
      }
    MACO_UNROLL
    for (int k = 0; k < kSyncs; ++k)
      if (const int i = warp_lane() + k * kWarpLanes; i < sync_count(task))
        *(RowWords*)&to.syncs[i] = syncs[k];
    const bool runs = runs_here<Kernel>(ctx, task.guard);
    if (warp_lane() == 0) {
      // A task that runs only on some ranks keeps the barrier at its start.
      const Task later = behind.task();
      const bool last = at + 1 == end, leads = !last && later.waits == 0 && later.guard == 0,
                 passes = Kernel::paged(call.kind) && !Kernel::load_ahead(call.kind);
      to.words = words;
      to.head = {call.first_operand, call.kind,
                 (u16)((runs ? TaskHead::kRuns : 0) | (leads ? TaskHead::kLeads : 0) |
                       (passes ? TaskHead::kPasses : 0) | (last ? TaskHead::kLast : 0))};
    }
    warp_sync();
    if (kPreparers > 1 && !counted(ctx, &memory->ready, at - begin)) return false;
    if (warp_lane() == 0) store_release_cta(&memory->ready, at - begin + 1);
    words = next;
    next = after;
    call = next_call;
    at += kPreparers;
    after = words_of(at + 2 * kPreparers);
    next_call = call_of(next);
    look_up();
    return true;
  }
};

// The loop of the signallers' warps behind the first.
template <class Kernel>
MACO_FN void prepare_apart(Context& ctx, const Stream& stream) {
  const u32 begin = stream.begin, end = stream.end;
  const u32 own = begin + (u32)spare_warp() - 1;
  if (own >= end) return;
  Preparer<Kernel> preparer(ctx, stream, own);
  while (preparer.at < end) {
    const u32 place = preparer.at - begin;
    if (place >= kPrepared && !counted(ctx, &ctx.memory()->signalled, place - kPrepared + 1))
      return;
    if (!preparer.prepare()) return;
  }
}

// Signals what tasks have done, and prepares other tasks meanwhile if no other warp does.
template <class Kernel>
MACO_FN void signal_in_turn(Context& ctx, const Stream& stream, Preparer<Kernel>* preparer) {
  constexpr int kWorld = Kernel::kWorld;
  const u32 begin = stream.begin, end = stream.end;
  u32 sends = 0;
  for (u32 at = begin; at < end; ++at) {
    // Signals come first while consumers have a task.
    while (preparer && preparer->at < end && preparer->at - at < kPrepared &&
           (preparer->at == at || preparer->is_free()))
      if (!preparer->prepare()) return;
    ctx.place = (int)(at - begin);
    if (!await_done(ctx)) return;
    const PreparedTask& task = ctx.memory()->tasks[(at - begin) % kPrepared];
    const Task row = task.words.task();
    ctx.call = row.call;
    ctx.tile = row.tile;
    const bool local_only = !task.head.has(TaskHead::kRuns);
    const u64 begun = task.begun();
    if (!local_only && !send_task<Kernel>(ctx, row, sends)) return;
    MACO_ROLLED
    for (int item = warp_lane(); item < (int)row.signals * kWorld; item += kWarpLanes) {
      const SyncRow sync = sync_row<Kernel>(task, row.sync, (int)row.waits + item / kWorld);
      if (sync.kind != kSyncHint) signal<Kernel>(ctx, sync, item % kWorld, local_only);
    }
    warp_sync();
    if (warp_lane() == 0) {
      if (kPreparesApart) store_release_cta(&ctx.memory()->signalled, at - begin + 1);
      add_relaxed(&ctx.control(ctx.rank())->heartbeat, 1);
    }
    warp_sync();
    ctx.profile_signalled_for(ctx.launch(), at, begun);
  }
  end_sends<Kernel>(ctx, sends);
}
template <class Kernel>
MACO_FN void signal_prepared(Context& ctx, const Stream& stream) {
  if (stream.begin == stream.end) return end_sends<Kernel>(ctx, 0);
  if constexpr (kPreparesApart) {
    if (spare_warp() > 0)
      prepare_apart<Kernel>(ctx, stream);
    else
      signal_in_turn<Kernel>(ctx, stream, nullptr);
  } else {
    Preparer<Kernel> preparer(ctx, stream, stream.begin);
    signal_in_turn<Kernel>(ctx, stream, &preparer);
  }
}

}  // namespace maco
