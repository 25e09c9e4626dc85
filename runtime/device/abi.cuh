// abi.cuh: what the host passes to the kernel. The same text is compiled into kernel.cu and into
// the host runtime (runtime/host/abi.h).

namespace maco {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr int kMaxValues = 256;
constexpr int kMaxVariables = 128;  // for launches that number themselves

// Why a CTA stopped. There is one for each CTA, in host-visible memory. The first of the CTA's
// threads that gives up a wait, or finds a bad index, writes it (state 0 -> 1 -> 2). From all of
// them the host finds the wait that caused the others.
struct Report {
  u32 state;  // 0 empty, 1 being written, 2 complete
  u32 kind;   // ReportKind
  u32 epoch;  // of the launch
  i32 cta;
  i32 place;  // task: position in the CTA's stream
  u32 call;   // index into the manifest's calls
  u32 tile;
  // kWaitLocal: the local event; kWaitPeer: the peer event; kWaitPacket: the call's operand;
  // kBadVariable, kBadValue: its number.
  u32 event;
  i32 source;  // rank waited for, or -1
  u32 expected;
  u32 seen;
  u32 stopped_by;  // a wait: 0 if its deadline passed, else Control::abort
  // kBadIndex: the index found; kWaitThreads: the block; kBadVariable and kBadValue: the value.
  i64 index;
  i64 limit;  // kBadIndex: the extent it must be under
};
enum ReportKind : u32 {
  kWaitLocal = 1,
  kWaitPeer = 2,
  kWaitPacket = 3,
  kWaitPage = 4,
  kBadIndex = 5,
  kWaitThreads = 6,  // index: the block of a user's kernel whose threads wait
  // Only in launches that number themselves; none of their tasks runs.
  kBadVariable = 7,  // a dim or scalar in memory is out of its range
  kBadValue = 8,     // one of the manifest's values is out of its range
  kSpent = 9,        // counters must be reset before another launch
  kWaitHanded = 10,  // event: the number of the collective
  kWaitMate = 11     // what the pair's other CTA offers
};

// A collective that is handed over to a library beside the kernel; in its rank's memory. The kernel
// raises `ready` and lowers `done`; the library's stream lowers `ready` and raises `done`.
struct Handed {
  u32 ready, done;
};

// Lies at the end of each rank's symmetric memory, behind the words of peer events, at the next
// multiple of 256. Peers write `abort`: 1 + the rank that stopped.
struct Control {
  u32 abort;      // not 0: stop
  u32 heartbeat;  // grows with every task that ends on the rank
  u32 claim;      // 1 once somebody has told the peers to stop
  u32 pad[61];
};

// A rank's symmetric memory: [slots][peer_events x world words: event * world + source][Control].
MACO_FN constexpr i64 control_offset(i64 slot_bytes, i64 peer_events, i64 world) {
  return (slot_bytes + peer_events * world * 4 + 255) / 256 * 256;
}
MACO_FN constexpr i64 symmetric_size(i64 slot_bytes, i64 peer_events, i64 world) {
  return control_offset(slot_bytes, peer_events, world) + (i64)sizeof(Control);
}

// What a kernel compiled with MACO_PROFILE records of each task of a launch that ended, in ticks of
// its CTA's clock. Sums and differences that don't fit are set to the largest value that does.
struct alignas(16) TaskStamps {
  u64 begun;  // when the wait began
  // Time from `begun` until the consumers had everything for which they waited, had done the work,
  // had written all results, and had signalled (`signalled`). On a rank that doesn't run the task
  // all are 0 except the last.
  u32 waited, computed, stored;
  u32 page_wait, packet_wait;  // during the work: waiting for pages and for packets
  u32 unused;
  u64 fill_begun;  // the loader: begin of the copies for this task
  u32 filled;      // from there until the last copy was issued; 0: no copies
  u32 fill_wait;   // of that time: waiting for free pages
  u32 signalled;   // apart from the others, as another warp may signal
  u32 unused_too[3];
};
static_assert(sizeof(TaskStamps) == 64,
              "two stores of consumers, one each of loader and signaller");
// Two moments of a CTA, by its clock and in nanoseconds of the GPU's common clock. All zero if the
// CTA has no tasks.
struct alignas(16) CtaStamps {
  u64 begin_ns, begin_clock, end_ns, end_clock;
};

// A matrix of which a kernel copies boxes, as cuTensorMapEncodeTiled encodes it. On the CPU target
// the first words are: address, rows, columns, bytes of an element, rows and columns of a box,
// columns of a run.
struct alignas(128) TensorMap {
  u64 words[16];
};

constexpr int kRoles = 3;  // of a CTA: consumers, loader, signaller

// State of launches that have the same arguments each time, as in a captured CUDA graph: it tells
// one launch from the next. Each CTA (on the CPU target each of its kRoles) has one in its rank's
// memory. The host writes it at a reset, and each launch updates it.
struct alignas(16) LaunchState {
  u32 epoch;    // of the last launch
  u32 refused;  // not 0: this launch did nothing, nor will the following ones
  u32 left;     // launches until counters must be reset
  u32 unused;
  i32 values[kMaxValues];  // values that don't fit in shared memory
};

// Where such launches find dims, then scalars, in the manifest's order.
struct Variables {
  u64 given[kMaxVariables];        // the value, or where in the rank's memory it is
  u64 placed[kMaxVariables / 64];  // bit i % 64 of word i / 64: it is an address
  // For variables in memory, bits in the same order: `wide`: an i64, not an i32; `from_end`:
  // negative values count from the end of the range.
  u64 wide[kMaxVariables / 64], from_end[kMaxVariables / 64];
};

// Where a launch finds things. Addresses are those of the rank's device.
struct LaunchPlaces {
  void** tensors;         // one for each tensor, in the manifest's order
  const TensorMap* maps;  // in the manifest's order
  char* arena;            // temporaries
  u32* counters;          // local events
  char** symmetric;       // for each rank the address of its symmetric memory
  Control* control;       // of this rank
  Report* reports;        // of this rank, one for each CTA
  i32 rank;
  u64 timeout_ns;      // without progress on any rank
  LaunchState* state;  // not null: the launch numbers itself
  Handed* handed;      // by number
  // Only for kernels compiled with MACO_PROFILE; others don't touch it.
  CtaStamps* cta_stamps;    // one for each CTA
  TaskStamps* task_stamps;  // one for each task, stream after stream
  u32 stamped_tasks;        // how many stamps there is room for
};

// The argument of maco_kernel and maco_reset, by value.
struct Launch : LaunchPlaces {
  u32 epoch;  // wraps; doesn't repeat within 2^31 launches, unless counters are reset
  i32 values[kMaxValues];
  Variables variables;  // used in place of both if there is a state
};
static_assert(sizeof(Launch) <= 4096, "more are too many arguments");

}  // namespace maco
