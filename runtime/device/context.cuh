// context.cuh: the rows of the compiled-in tables, and what device functions know about where they
// run.

namespace maco {

// Where an operand lies: among the rank's temporaries, in its symmetric memory, or in tensor (space
// - kSpaceTensors) of Launch::tensors.
enum : u32 { kSpaceTemps = 0, kSpaceSymmetric = 1, kSpaceTensors = 2 };

struct alignas(16) Operand {
  u32 offset256;  // in units of 256 bytes
  u32 space;
  // Slots: bytes of one copy / 256. Others: the number of the tensor map that copies boxes of the
  // operand.
  u32 copy256;
  // The remaining members are for slots only. rotation: copies that launches use in turn. It is a
  // power of two, so that the turns continue where the epoch wraps.
  u16 rotation;
  u16 use;  // of packets: added to the launch's first flag
};
static_assert(sizeof(Operand) == 16, "one load fetches it");
// A row of 16 bytes as it is loaded, for the same reason as TaskWords.
struct alignas(16) RowWords {
  u32 words[4];
  template <class Row>
  MACO_FN Row as() const {
    static_assert(sizeof(Row) == sizeof(RowWords), "a row of 16 bytes");
    union {
      RowWords loaded;
      Row row;
    } u = {*this};
    return u.row;
  }
};
struct alignas(8) CallRow {
  u32 first_operand;
  u16 operands;
  u16 kind;
};
struct alignas(16) TaskRow {
  u64 call : 20, tile : 21;
  u64 sync : 23;  // its waits, then its signals, from syncs[sync] on
  u64 waits : 16, signals : 15;
  u64 guard : 12;   // guards[guard]: the ranks that run it
  u64 packets : 1;  // what it puts travels in packets
  // By how many places the CTA's last task that writes what this task's loader reads stands before
  // this task, or by fewer; 0: no such task.
  u64 writer : 20;
};
static_assert(sizeof(TaskRow) == 16, "one load fetches it");
struct Task {
  u32 call, tile, sync, waits, signals, guard;
  bool packets;
  u32 writer;
};
// A TaskRow as it is loaded. It is decoded when its turn comes: the compiler would keep each byte
// of long-lived bit fields in a register of its own.
struct alignas(16) TaskWords {
  u64 low, high;
  static MACO_FN u32 bits(u64 word, int at, int count) {
    return (u32)(word >> at) & (u32)((1u << count) - 1);
  }
  MACO_FN u32 call() const { return bits(low, 0, 20); }
  MACO_FN Task task() const {
    return {call(),
            bits(low, 20, 21),
            bits(low, 41, 23),
            bits(high, 0, 16),
            bits(high, 16, 15),
            bits(high, 31, 12),
            bits(high, 43, 1) != 0,
            bits(high, 44, 20)};
  }
};
// A CTA's tasks are tasks[begin, end). The row also has what else is needed of the first task, to
// save a trip.
struct alignas(16) StreamRow {
  u32 begin, end;
  CallRow call;
  TaskRow task;
};
static_assert(sizeof(StreamRow) == 32, "two loads fetch it");
// kSyncLocalSys: as kSyncLocal, at sys scope; kSyncHint: relaxed.
enum SyncKind : u8 { kSyncLocal = 0, kSyncPeer = 1, kSyncLocalSys = 2, kSyncHint = 3 };
// as ir::RankRef::Kind
enum SyncWho : u8 { kWhoSelf = 0, kWhoOthers = 1, kWhoAll = 2, kWhoRank = 3, kWhoShift = 4 };
struct alignas(16) SyncRow {
  u32 event;
  u32 count;  // local: arrivals a launch
  u8 kind, who;
  u16 lag;  // waits: for launch (epoch - lag)
  // kWhoRank: the rank; kWhoShift: what is added to the own rank; waits for a hint: how many
  // signals may be missing.
  i32 n;
};

// The last spare warp is the scout: it looks at waits ahead of the consumers, so that the loader
// can go on. On the CPU target the loader looks itself. Without either, the loader waits for the
// consumers. The other spare warps help the signaller to send.
constexpr bool kHasScout = Cta::kScouts && kSpareWarps > 0;
constexpr bool kLoaderScouts = Cta::kScouts && kWarpLanes == 1;
constexpr int kSendWarps = kSpareWarps - (kHasScout ? 1 : 0);

constexpr int kScratchBytes = Cta::kScratchBytes;
// Partial sums of reductions over the CTA: one for each warp and each of some rows.
constexpr int kReduceParts = 32;
// Addresses and uses of so many operands are looked up while the task waits; others are looked up
// when needed.
constexpr int kStagedOperands = 20;

// What has been looked up of a task's operands.
struct LookedUp {
  char* operands[kStagedOperands];
  u32 marks[kStagedOperands];  // operand_mark
};

// Each warp's Context lies in shared memory: a thread's own copy would drop out of the caches at
// each acquire.
constexpr int kContextBytes = kProfile ? 112 : 80;
// So many signals' words are looked up while the task waits; others are looked up when needed.
constexpr int kStagedSignals = 8;

// What a launch is told also lies in shared memory, as every task needs some of it: of the values,
// the first few.
constexpr int kStagedValues = 16;
struct CtaLaunch : LaunchPlaces {
  const i32* all_values;
  u32 epoch;
  i32 values[kStagedValues];
};
// On the CPU target roles begin without a barrier, and have copies of their own.
constexpr int kLaunchCopies = kWarpLanes == 1 ? kRoles : 1;
MACO_FN int launch_copy() {
  return kLaunchCopies == 1 ? 0 : is_signaller() ? 2 : is_loader() ? 1 : 0;
}

// What the signaller has looked up about a task before the task's turn: rows of tables lie in far
// memory, one behind the other.
constexpr int kPreparedSyncs = 8;  // its waits, then its signals; others when needed
// When its turn came, in profiled kernels.
template <bool on>
struct TaskBegin {
  u64 clock;
  MACO_FN void begins(u64 at) { clock = at; }
  MACO_FN u64 begun() const { return clock; }
};
template <>
struct TaskBegin<false> {
  MACO_FN void begins(u64) {}
  MACO_FN u64 begun() const { return 0; }
};
// What consumers need at once of a prepared task, besides its row.
struct alignas(8) TaskHead {
  enum : u16 {
    kRuns = 1,    // on this rank
    kLeads = 2,   // the next task waits for nothing
    kPasses = 4,  // the loader waits until the task's waits are over
    kLast = 8     // none follows
  };
  u32 first_operand;  // of its call
  // Also of its call. With 32 bits the compiler makes a jump table of it, and tokens take up to 0.4
  // % longer (docs/benchmarks/logs/short-tasks-2026-11-28.txt).
  u16 kind;
  u16 notes;
  MACO_FN bool has(u32 note) const { return (notes & note) != 0; }
};
struct alignas(16) PreparedTask : TaskBegin<kProfile> {
  TaskWords words;
  TaskHead head;
  SyncRow syncs[kPreparedSyncs];
  LookedUp found;
};
// In profiled kernels the stamps take the room of one prepared task.
constexpr int kPrepared = kProfile && Cta::kPrepared > 2 ? Cta::kPrepared - 1 : Cta::kPrepared;
template <int kTasks>
struct PreparedTasks {
  PreparedTask tasks[kTasks];  // by place, in turn
  u32 ready;                   // 1 + place of the last prepared task
  u32 signalled;               // likewise of the last signalled one, where slots wait for it
  u32 filled;                  // likewise of the last that the loader has passed, if there is one
};
template <>
struct PreparedTasks<0> {};

// The CTA's shared memory, without the pages, which follow it.
struct CtaMemory : PreparedTasks<kPrepared> {
  u32 refused;  // not 0: the launch does nothing
  u32 stop;     // not 0: an abort has been seen, leave at the next barrier
  // 1 + place of the last task whose waits the consumers have passed; updated where the loader
  // needs it.
  u32 passed;
  u32 scouted;   // likewise, as far as the scout knows
  u32 reported;  // 1 once somebody writes the CTA's report
  u32 done;      // 1 + place of the last task that the consumers have finished
  // What warps behind the signaller send together with it on its order: the number of the order,
  // and for each of them the last order that it has finished.
  u32 send_call, send_tile, send_turn, sent[kSendWarps > 0 ? kSendWarps : 1];
  float reduce[kReduceParts];
  float scales[16];  // of the rows of a matmul that norms them
  alignas(8) u64 full_barriers[Cta::kPages > 0 ? Cta::kPages : 1];
  u64 empty_barriers[Cta::kPages > 0 ? Cta::kPages : 1];
  // Exchanges with the pair's other CTA (pages.cuh), in turn: the pages that it offers and, where
  // nothing counts bytes, whether it has filled the pages that were offered to it.
  u32 mate_offers[Cta::kPages > 0 ? Cta::kPages : 1], mate_sent[Cta::kPages > 0 ? Cta::kPages : 1];
  CtaLaunch launch[kLaunchCopies];
  // Looked up by consumers for themselves, if no signaller prepares tasks; then by the loader.
  LookedUp found[kPrepared > 0 ? 1 : 2];
  char* symmetric[Cta::kWorld];  // of all ranks (on the CPU target for the consumers)
  // For the current task and, in turn, for the task before, which may still signal: the counter, or
  // nullptr if the signal isn't one.
  u32* signals[2][Cta::kSignallers > 0 ? 1 : kStagedSignals];
  // Contexts of the consumers, the loader and the signaller (context_of).
  alignas(16) char contexts[kWarps + 2][kContextBytes];
  alignas(1024) char scratch[kScratchBytes];  // rows of a matmul's operand may lie there
};
static_assert(sizeof(CtaMemory) <= Cta::kHeadBytes + Cta::kScratchBytes, "the head has room");

// What a warp knows about where it runs. All of its lanes write the same values, and only after all
// have read the old ones: a barrier, or a warp_sync, stands in between. An empty base takes no
// room.
struct Context : Profile<kProfile> {
  // memory(), loaded rather than computed: loops over pages would compute it each time.
  CtaMemory* const own;
  // Placement into existing memory.
  static MACO_FN void* operator new(decltype(sizeof(0)), char* at) { return at; }
  static MACO_FN void operator delete(void*, char*) {}
  int world;
  i64 control_at;  // offset of Control in symmetric memory
  int place = 0;   // of the current task in the CTA's stream
  u32 notes = 0;   // TaskHead::notes of that task, if it was prepared
  u32 call = 0, tile = 0;
  int kind = 0;          // of the current task, if its code is shared by several kinds
  const u32 first_flag;  // of this launch's packets; an operand's use is added
  u32 sent_flag;         // likewise, for the packets that the current task sends
  // The ring of pages, from this role's view.
  u32 page_index = 0;                 // pages acquired (loader) or awaited (consumers) so far
  u32 page_slot = 0, page_round = 0;  // page_index modulo and divided by Cta::kPages
  u32 pages_released = 0;             // by the consumers
  u32 exchanges = 0;                  // with the pair's other CTA, so far

  MACO_FN Context(int world_, i64 control_at_, u32 first)
      : own(memory()),
        world(world_),
        control_at(control_at_),
        first_flag(first),
        sent_flag(first) {}

  // Their addresses are known when compiling, and needn't be loaded.
  static MACO_FN CtaMemory* memory() { return (CtaMemory*)cta_memory(); }
  static MACO_FN CtaLaunch& launch() { return memory()->launch[launch_copy()]; }
  static MACO_FN char* pages() { return cta_memory() + Cta::kHeadBytes + Cta::kScratchBytes; }

  static MACO_FN int rank() { return launch().rank; }
  MACO_FN int cta() const { return cta_id(); }
  static MACO_FN u32 epoch() { return launch().epoch; }
  static MACO_FN i32 value(int i) {
    return i < kStagedValues ? launch().values[i] : launch().all_values[i];
  }
  // Flags of packets between the rank's own tasks: of those that the launch's tasks send, and of
  // those that the current task sends. These differ if the current task signals nobody. Narrow
  // flags are the lower 16 bits.
  static MACO_FN u32 own_flag() { return epoch(); }
  MACO_FN u32 own_sent_flag() const { return epoch() ^ ((sent_flag ^ first_flag) >> 16); }
  // Changes the flag if a wait gave up: what the task then computes must not be used.
  static MACO_FN u32 unless_stopped(u32 flag) { return flag ^ (stopped() ? 0x8000u : 0); }
  // kScratchBytes of shared memory, aligned to 128, for the consumers and the current task.
  static MACO_FN char* scratch() { return memory()->scratch; }
  // A rank's symmetric memory.
  static MACO_FN char* symmetric(int r) {
    return (kLaunchCopies > 1 && is_loader() ? launch().symmetric : memory()->symmetric)[r];
  }
  MACO_FN Control* control(int r) const { return (Control*)(symmetric(r) + control_at); }

  // A hint that the CTA is to stop; threads may differ until the next barrier, which is
  // `any_stopped`.
  static MACO_FN bool stopped() { return load_relaxed_cta(&memory()->stop) != 0; }
  static MACO_FN bool any_stopped() { return cta_any(stopped()); }

  // Reports an out-of-range index that came from data. The caller skips the access and goes on to
  // its next barrier.
  MACO_FN void bad_index(i64 index, i64 limit);
};

static_assert(sizeof(Context) <= kContextBytes, "a Context has room");

// The entries of CtaMemory::contexts for other warps; consumer warps have the first entries, by
// their number.
constexpr int kLoaderContext = kWarps, kSignallerContext = kWarps + 1;
MACO_FN Context& context_of(int i) { return *(Context*)Context::memory()->contexts[i]; }

MACO_FN void write_report(const Context& ctx, u32 kind, u32 event, int source, u32 expected,
                          u32 seen, u32 stopped_by, i64 index, i64 limit) {
  Report* r = ctx.launch().reports + ctx.cta();
  store_relaxed(&r->state, 1);
  r->kind = kind;
  r->epoch = ctx.epoch();
  r->cta = ctx.cta();
  r->place = ctx.place;
  r->call = ctx.call;
  r->tile = ctx.tile;
  r->event = event;
  r->source = source;
  r->expected = expected;
  r->seen = seen;
  r->stopped_by = stopped_by;
  r->index = index;
  r->limit = limit;
  store_release_sys(&r->state, 2);
}

// Stops the run: records why if the CTA has no record yet, and tells all peers unless they know.
// Not inlined where functions may be called, as it is rare and would be in every wait loop.
MACO_OP void stop_run(Context& ctx, u32 kind, u32 event, int source, u32 expected, u32 seen,
                      u32 stopped_by, i64 index, i64 limit) {
  if (claim(&ctx.memory()->reported))
    write_report(ctx, kind, event, source, expected, seen, stopped_by, index, limit);
  store_relaxed(&ctx.memory()->stop, 1);
  if (stopped_by != 0 || !claim(&ctx.control(ctx.rank())->claim)) return;
  for (int r = 0; r < ctx.world; ++r) {
    u32* word = &ctx.control(r)->abort;
    if (load_relaxed(word) == 0) store_release_sys(word, (u32)ctx.rank() + 1);
  }
}
MACO_FN void Context::bad_index(i64 index, i64 limit) {
  stop_run(*this, kBadIndex, 0, -1, 0, 0, 0, index, limit);
}

// A number that device code gets from the compiler, or from the host at launch.
template <i64 N>
struct Const {
  static constexpr bool is_constant = true;
  static constexpr i64 value = N;
  static MACO_FN i64 get(const Context&) { return N; }
};
template <int I>
struct Value {
  static constexpr bool is_constant = false;
  static MACO_FN i64 get(const Context& ctx) { return ctx.value(I); }
};

// The address of an operand on this rank; for slots that of this epoch's copy.
MACO_FN char* operand_address(const Context& ctx, const Operand& o) {
  const bool slots = o.space == kSpaceSymmetric;
  const u32 turn = slots ? ctx.epoch() & (o.rotation - 1) : 0;
  char* const base = slots ? ctx.symmetric(ctx.rank())
                     : o.space == kSpaceTemps
                         ? ctx.launch().arena
                         : (char*)ctx.launch().tensors[o.space - kSpaceTensors];
  return base + ((u64)turn * o.copy256 + o.offset256) * 256;
}

// For a slot the number that tells its packets from those of other slots; for other operands the
// number of the tensor map.
MACO_FN u32 operand_mark(const Operand& o) {
  return o.space == kSpaceSymmetric ? o.use : o.copy256;
}

// The operands of a call, in order.
struct Args {
  Context& ctx;
  const Operand* rows;
  i32 at = 0;  // by how many bytes the looked-up data lies behind the consumers' own
  static MACO_FN i32 place_of(const LookedUp& found) {
    return (i32)((const char*)&found - (const char*)Context::memory()->found);
  }
  MACO_FN const LookedUp& looked_up() const {
    return *(const LookedUp*)((const char*)Context::memory()->found + at);
  }
  template <class T>
  MACO_FN T* ptr(int i) const {
    return (T*)(i < kStagedOperands ? looked_up().operands[i]
                                    : operand_address(ctx, table_load(rows + i)));
  }
  // The number that tells the packets of operand i, a slot, from those of other slots in its place.
  MACO_FN u32 use(int i) const {
    return i < kStagedOperands ? looked_up().marks[i] : table_load(rows + i).use;
  }
  // The tensor map of operand i, which is loaded in boxes.
  MACO_FN const TensorMap* map(int i) const {
    return ctx.launch().maps +
           (i < kStagedOperands ? looked_up().marks[i] : table_load(rows + i).copy256);
  }
  // The address of slot operand i on another rank.
  template <class T>
  MACO_FN T* peer(int i, int rank) const {
    return (T*)(ctx.symmetric(rank) + ((char*)ptr<char>(i) - ctx.symmetric(ctx.rank())));
  }
};

// The same for warps that send what a task has stored; nothing was looked up for them.
struct SenderArgs {
  Context& ctx;
  const Operand* rows;
  template <class T>
  MACO_FN T* ptr(int i) const {
    return (T*)operand_address(ctx, table_load(rows + i));
  }
};
// Threads that send a task's data together: the signaller and the warps behind it, or the consumers
// if there is no signaller.
MACO_FN constexpr u32 senders() {
  return (u32)(Cta::kSignallers > 0 ? (1 + kSendWarps) * kWarpLanes : kConsumers);
}
MACO_FN u32 sender_thread() {
  return (u32)(Cta::kSignallers > 0 ? spare_warp() * kWarpLanes + warp_lane() : consumer_thread());
}

// Combines values over all lanes of the warp, in a fixed order; all lanes get the result.
template <class A, class Op>
MACO_FN A warp_combined(A value, Op op) {
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) value = op(value, shuffle_xor(value, mask));
  return value;
}
MACO_FN float warp_sum(float value) {
  return warp_combined(value, [](float a, float b) { return fadd(a, b); });
}
struct Top {
  MACO_FN float operator()(float a, float b) const { return ftop(a, b); }
};
MACO_FN float warp_combined(float value, Top) { return warp_top(value); }

}  // namespace maco
