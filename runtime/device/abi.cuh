// abi.cuh: what the host hands to the kernel. The same text is compiled into kernel.cu and into the host runtime
// (runtime/host/abi.h).

namespace maco {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

constexpr int kMaxValues = 256;

// Why a rank stopped. In host-visible memory, one a rank; the first CTA to fail on a rank writes it (state 0 -> 1 -> 2).
struct Report {
  u32 state;       // 0 empty, 1 being written, 2 complete
  u32 kind;        // ReportKind
  i32 cta;
  i32 place;       // task: position in the CTA's stream
  u32 call;        // index into the manifest's calls
  u32 tile;
  u32 event;       // kind TimeoutLocal: local event; TimeoutPeer: peer event; TimeoutPacket: operand of the call
  i32 source;      // rank waited for, or -1
  u32 expected;
  u32 seen;
  i64 index;       // kind Index: the index found
  i64 limit;       // and the extent it must be under
  u32 waited;      // kind PeerAborted: what the task was waiting for then, as kind, event and source of a time-out; 0: nothing
  u32 waited_event;
  i32 waited_source;
  u32 pad;
};
enum ReportKind : u32 { kTimeoutLocal = 1, kTimeoutPeer = 2, kTimeoutPacket = 3, kTimeoutPage = 4, kBadIndex = 5, kPeerAborted = 6 };

// At the end of each rank's symmetric memory, behind the words of peer events, on the next multiple of 256; peers write `abort`:
// 1 + the rank that stopped.
struct Control {
  u32 abort;      // not 0: leave
  u32 heartbeat;  // grows with every task that ends on the rank
  u32 claim;      // 1 once somebody writes the rank's report
  u32 pad[61];
};

// A rank's symmetric memory: [slots][peer_events x world words: event * world + source][Control].
MACO_FN constexpr i64 control_offset(i64 slot_bytes, i64 peer_events, i64 world) {
  return (slot_bytes + peer_events * world * 4 + 255) / 256 * 256;
}
MACO_FN constexpr i64 symmetric_size(i64 slot_bytes, i64 peer_events, i64 world) {
  return control_offset(slot_bytes, peer_events, world) + (i64)sizeof(Control);
}

// Dynamic shared memory of a CTA: its head (CtaMemory in context.cuh), then the pages.
constexpr i64 kCtaMemoryBytes = 18432;
MACO_FN constexpr i64 shared_bytes(i64 pages, i64 page_bytes) { return kCtaMemoryBytes + pages * page_bytes; }

// Arguments of maco_kernel and maco_reset, by value. Addresses as seen from the rank's device.
struct Launch {
  void** tensors;     // one a tensor, in the manifest's order
  char* arena;        // temporaries
  u32* counters;      // local events
  char** symmetric;   // world entries: symmetric memory of every rank
  Report* report;     // of this rank
  u32 epoch;          // launch number, wraps; never repeats within 2^31 launches
  i32 rank;
  u64 timeout_ns;     // without progress of any rank
  i32 values[kMaxValues];
};

}  // namespace maco
