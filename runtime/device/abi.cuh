// abi.cuh: what the host hands to the kernel. The same text is compiled into kernel.cu and into the
// host runtime (runtime/host/abi.h).

namespace maco {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr int kMaxValues = 256;
constexpr int kMaxVariables = 128;  // of launches that number themselves

// Why a CTA stopped. In host-visible memory, one a CTA; the first of its threads to give up a wait,
// or to meet a bad index, writes it (state 0 -> 1 -> 2). The host tells from all of them which wait
// the others follow from.
struct Report {
  u32 state;  // 0 empty, 1 being written, 2 complete
  u32 kind;   // ReportKind
  u32 epoch;  // of the launch
  i32 cta;
  i32 place;  // task: position in the CTA's stream
  u32 call;   // index into the manifest's calls
  u32 tile;
  // kWaitLocal: local event; kWaitPeer: peer event; kWaitPacket: operand of the call; kBadVariable,
  // kBadValue: which
  u32 event;
  i32 source;  // rank waited for, or -1
  u32 expected;
  u32 seen;
  u32 stopped_by;  // a wait: 0 if its deadline passed, else what Control::abort said
  // kBadIndex: the index found; kWaitThreads: the block; kBadVariable and kBadValue: what it is
  i64 index;
  i64 limit;  // kBadIndex: the extent it must be under
};
enum ReportKind : u32 {
  kWaitLocal = 1,
  kWaitPeer = 2,
  kWaitPacket = 3,
  kWaitPage = 4,
  kBadIndex = 5,
  kWaitThreads = 6,  // index: the block of a user's kernel whose threads wait for each other
  // Of launches that number themselves; none of their tasks runs.
  kBadVariable = 7,  // a dim or scalar in memory is out of its range
  kBadValue = 8,     // one of the manifest's values is
  kSpent = 9,        // counters must be reset before another launch
  kWaitHanded = 10,  // event: number of what was handed over
  kWaitMate = 11     // what the other CTA of the pair offers
};

// Of a collective that is handed over to a library beside the kernel, in its rank's memory. The
// kernel raises `ready` and lowers `done`, the library's stream lowers `ready` and raises `done`.
struct Handed {
  u32 ready, done;
};

// At the end of each rank's symmetric memory, behind the words of peer events, on the next multiple
// of 256; peers write `abort`: 1 + the rank that stopped.
struct Control {
  u32 abort;      // not 0: leave
  u32 heartbeat;  // grows with every task that ends on the rank
  u32 claim;      // 1 once somebody has told the peers to leave
  u32 pad[61];
};

// A rank's symmetric memory: [slots][peer_events x world words: event * world + source][Control].
MACO_FN constexpr i64 control_offset(i64 slot_bytes, i64 peer_events, i64 world) {
  return (slot_bytes + peer_events * world * 4 + 255) / 256 * 256;
}
MACO_FN constexpr i64 symmetric_size(i64 slot_bytes, i64 peer_events, i64 world) {
  return control_offset(slot_bytes, peer_events, world) + (i64)sizeof(Control);
}

// What a kernel compiled with MACO_PROFILE says of each task, in ticks of its CTA's clock; sums and
// differences that don't fit are the largest that do. Of a launch that ended.
struct alignas(16) TaskStamps {
  u64 begun;  // the wait
  // From there until the consumers had all they waited for, had done the work, had written all they
  // write, and had signalled (`signalled`). On a rank that doesn't run the task: 0 but for that.
  u32 waited, computed, stored;
  u32 page_wait, packet_wait;  // of the work: waiting for pages and for packets
  u32 unused;
  u64 fill_begun;  // the loader: for this task, once it may
  u32 filled;      // from there, until the last copy was issued; 0 if there is none
  u32 fill_wait;   // of that: waiting for free pages
  u32 signalled;   // apart, since who signals may be another warp
  u32 unused_too[3];
};
static_assert(sizeof(TaskStamps) == 64,
              "two stores of consumers, one each of loader and signaller");
// Two moments of a CTA, by its clock and in nanoseconds that all CTAs of a GPU share. All zero if
// it has no tasks.
struct alignas(16) CtaStamps {
  u64 begin_ns, begin_clock, end_ns, end_clock;
};

// A matrix whose boxes a kernel copies: what cuTensorMapEncodeTiled makes of it; on the CPU target
// the first words: address, rows, columns, bytes of an element, rows and columns of a box, columns
// of a run.
struct alignas(128) TensorMap {
  u64 words[16];
};

constexpr int kRoles = 3;  // of a CTA: consumers, loader, signaller

// Of launches that have the same arguments each time, as in a captured CUDA graph: what tells one
// from the next. Each CTA (on the CPU target each of its kRoles) has one in its rank's memory; the
// host writes it at a reset, from then on each launch does.
struct alignas(16) LaunchState {
  u32 epoch;    // of the last launch
  u32 refused;  // not 0: it did nothing, nor will those that follow
  u32 left;     // launches until counters must be reset
  u32 unused;
  i32 values[kMaxValues];  // those that have no room in shared memory
};

// Where such launches find dims, then scalars, in the manifest's order.
struct Variables {
  u64 given[kMaxVariables];        // the value, or where in the rank's memory it is
  u64 placed[kMaxVariables / 64];  // which of both it is: bit i % 64 of word i / 64
  // Of those in memory, bits in the same way: an i64, not an i32; negative ones count from the end
  // of the range.
  u64 wide[kMaxVariables / 64], from_end[kMaxVariables / 64];
};

// Where a launch finds things. Addresses as seen from the rank's device.
struct LaunchPlaces {
  void** tensors;         // one a tensor, in the manifest's order
  const TensorMap* maps;  // in the manifest's order
  char* arena;            // temporaries
  u32* counters;          // local events
  char** symmetric;       // world entries: symmetric memory of every rank
  Control* control;       // of this rank
  Report* reports;        // of this rank, one a CTA
  i32 rank;
  u64 timeout_ns;      // without progress of any rank
  LaunchState* state;  // not null: the launch numbers itself
  Handed* handed;      // by number
  // Of kernels compiled with MACO_PROFILE; others touch none of it.
  CtaStamps* cta_stamps;    // one a CTA
  TaskStamps* task_stamps;  // one a task, stream after stream
  u32 stamped_tasks;        // how many there is room for
};

// The argument of maco_kernel and maco_reset, by value.
struct Launch : LaunchPlaces {
  u32 epoch;  // wraps; never repeats within 2^31 launches, unless counters are reset
  i32 values[kMaxValues];
  Variables variables;  // in place of both, where there is a state
};
static_assert(sizeof(Launch) <= 4096, "more are too many arguments");

}  // namespace maco
