// ir::Program: how a graph is computed. Buffers, calls, tasks with the regions they touch, events,
// one in-order stream of tasks per SM. One Program serves all ranks: a task runs on every rank
// unless its `ranks` says otherwise.
//
// A Program carries its stage. Each stage promises more, and print/parse (ir/program_text.h) keep
// all of it:
//   tiled      buffers, calls, tasks with regions, in an order in which every dependency on a rank
//              points forward
//   planned    temporaries and slots have addresses
//   scheduled  each task has an SM and a place in its stream
//   synced     events, waits and signals order every two conflicting tasks
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/body.h"
#include "ir/diagnostics.h"
#include "ir/dtype.h"
#include "ir/expr.h"
#include "ir/graph.h"
#include "ir/ids.h"
#include "ir/priority.h"

namespace maco::ir {

enum class Stage : uint8_t { Tiled, Planned, Scheduled, Synced };
std::string_view name(Stage stage);

/// Input, Param, State, Output: a tensor of the caller's, private to its rank. Temp: in the rank's
/// arena, private to the rank. Slot: in the rank's symmetric memory; only put tasks, of any rank,
/// write it, and only its own rank reads it. This is not TensorKind: a graph has no slots, and its
/// scalars are no buffers here.
enum class BufferKind : uint8_t { Input, Param, State, Output, Temp, Slot };
std::string_view name(BufferKind kind);

/// A dense row-major array of elements. `rows` x `cols` is its natural shape (all axes but the
/// last, times the last; a tensor of one axis whose extent depends on a dim is n x 1, another 1 x
/// n); regions may see it with another pitch.
struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::Temp;
  DType dtype = DType::F32;
  Expr rows;             // at launch, over dims
  int64_t max_rows = 1;  // for the dims' maxima
  int64_t cols = 1;
  std::string tensor;  // the graph's tensor, or "" for slots and internal buffers
  /// Slot only: how many copies launches use in turn (launch e uses copy e mod rotation).
  int64_t rotation = 1;
  /// The buffer holds packets, which take twice the bytes. In slots each 4 bytes of payload are
  /// followed by a 4-byte flag, which identifies the launch and `use`. In temporaries each element,
  /// of 2 or 4 bytes, is followed by a flag of its size. Regions count elements of payload. A
  /// temporary with packets has the same rows in each launch and shares its bytes with no other
  /// buffer, so that what isn't written yet has the flag of the previous launch.
  bool packets = false;
  /// Whether the packets are between tasks of one rank. Their readers poll and need no other order.
  bool own_packets() const { return packets && kind == BufferKind::Temp; }
  /// Only for slots with packets: the slot's number among those in the same place, which a launch
  /// uses one after the other. No two of them have the same number.
  int64_t use = 0;
  /// Only for slots with packets: the slot stands for data that a library carries outside of the
  /// kernel, after the kernel has handed a collective over. It has a place like any slot, so that
  /// the same is proved of it; the place is behind symmetric memory and has no memory.
  bool wire = false;
  /// Planned: byte offset in the arena of temporaries (Temp) or in symmetric memory (Slot). Always
  /// a multiple of 256.
  std::optional<int64_t> offset;

  int64_t max_elements() const { return max_rows * cols; }
  /// Bytes of one copy. Packet slots: payload rounded up to 4 bytes a row of `cols`, times two.
  int64_t bytes() const;
  /// Slot: bytes from one copy to the next, bytes() rounded up to 256: launch e uses offset + (e
  /// mod rotation) * copy_bytes().
  int64_t copy_bytes() const;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// Names ranks, either relative to the rank that runs the task or absolutely.
struct RankRef {
  enum class Kind : uint8_t { Self, Others, All, Rank, Shift };
  Kind kind = Kind::Self;
  int32_t n = 0;  // Rank: the rank; Shift: rank + n modulo world
  static RankRef self() { return {}; }
  static RankRef others() { return {Kind::Others, 0}; }
  static RankRef all() { return {Kind::All, 0}; }
  static RankRef rank(int32_t r) { return {Kind::Rank, r}; }
  static RankRef shift(int32_t k) { return {Kind::Shift, k}; }
  friend bool operator==(const RankRef&, const RankRef&) = default;
};
/// Ranks in ascending order: a range, or a range without one of its ranks.
class Ranks {
 public:
  static constexpr int kNone = std::numeric_limits<int>::min();
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = int;
    using difference_type = std::ptrdiff_t;
    using pointer = const int*;
    using reference = int;
    iterator() = default;
    iterator(int at, int without) : at_(at + (at == without)), without_(without) {}
    int operator*() const { return at_; }
    iterator& operator++() { return *this = iterator(at_ + 1, without_); }
    iterator operator++(int) { return std::exchange(*this, iterator(at_ + 1, without_)); }
    friend bool operator==(const iterator&, const iterator&) = default;

   private:
    int at_ = 0, without_ = kNone;
  };
  /// From `first` up to `end`; `without` is one of them, or kNone.
  Ranks(int first, int end, int without = kNone) : first_(first), end_(end), without_(without) {}
  iterator begin() const { return {first_, without_}; }
  iterator end() const { return {end_, without_}; }
  size_t size() const { return static_cast<size_t>(end_ - first_ - (without_ != kNone)); }
  bool empty() const { return size() == 0; }
  int front() const { return *begin(); }
  bool contains(int rank) const { return rank >= first_ && rank < end_ && rank != without_; }

 private:
  int first_, end_, without_;
};
/// The ranks that `ref` means for a task running on `rank`, one of the world's.
Ranks resolve(RankRef ref, int rank, int world);

/// A run of rows from which a region's rows are counted: block `ref` of a buffer in blocks of
/// `rows` rows. A block's index is a rank's number. Where only the launch knows a block's rows,
/// they are Program::values[*value] and `rows` is 0; the region then ends where its block does.
struct Block {
  RankRef ref{};
  int64_t rows = 0;
  std::optional<uint32_t> value{};
  /// False for a region whose rows are counted from row 0.
  bool any() const { return rows != 0 || value.has_value(); }
  /// Whether different ranks mean different blocks.
  bool moves() const {
    return any() && (ref.kind == RankRef::Kind::Self || ref.kind == RankRef::Kind::Shift);
  }
  friend bool operator==(const Block&, const Block&) = default;
};

/// Elements of a buffer: rows [r0, r1) by columns [c0, c1) of the buffer seen as a matrix with
/// `pitch` elements a row. Rows are counted from those of `block`. A block of several ranks
/// (others, all) means the region in each of these blocks. `where`: the ranks on which the buffer
/// lies. `from`: rows are counted from row Program::values[*from], which only the launch knows.
/// Only states have such regions; these have no block and are Read or MayWrite.
struct Region {
  BufferId buffer{};
  int64_t pitch = 1;
  int64_t r0 = 0, r1 = 0, c0 = 0, c1 = 0;
  Block block;
  RankRef where;
  std::optional<uint32_t> from{};
  friend bool operator==(const Region&, const Region&) = default;
};

enum class AccessKind : uint8_t {
  Read,      // may read any of it, nothing else
  Write,     // writes all of it, nothing else (rows beyond a dim's actual value excepted)
  MayWrite,  // may write any of it, nothing else: where dims, scalars or data decide
};
struct Access {
  AccessKind kind = AccessKind::Read;
  Region region;
  bool writes() const { return kind != AccessKind::Read; }
  friend bool operator==(const Access&, const Access&) = default;
};

/// A dim or scalar of the graph: what the caller gives at each launch, the same on all ranks.
struct Variable {
  std::string name;
  Interval range;  // both ends included
  bool scalar = false;
  std::optional<int64_t> typical = std::nullopt;  // if the graph says it; for costs only
  friend bool operator==(const Variable&, const Variable&) = default;
};

/// A run-time integer that device code reads by index: an expression over dims, scalars, rank and
/// world that the host evaluates for each launch and rank.
struct Value {
  Expr expr;
  Interval range;  // both ends included
  friend bool operator==(const Value&, const Value&) = default;
};

/// One compile-time parameter of a device function. Codegen writes it as a `static constexpr`
/// member (int64_t, double, bool; Word, an enumerator), a type alias (DType; ValueRef as Const<n>
/// or Value<i>), a function that looks a number up (Table), or code that computes an element
/// (BodyParam).
struct ValueRef {
  std::variant<int64_t, uint32_t> v;  // a constant, or an index into Program::values
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
};
/// One of the words that the function's parameter allows (compiler/functions).
struct Word {
  std::string text;
  friend bool operator==(const Word&, const Word&) = default;
};
struct Table {
  std::vector<uint64_t> words;
  friend bool operator==(const Table&, const Table&) = default;
};
struct Param {
  std::string name;
  std::variant<bool, int64_t, double, DType, ValueRef, Word, Table, BodyParam> value;
  friend bool operator==(const Param&, const Param&) = default;
};

enum class Reduction : uint8_t { Sum, Avg, Max, Min };
std::string_view name(Reduction reduction);

/// What each task of a call moves. `from` and `to` are indices into Task::accesses.
/// Copy: element k of the source, row by row, becomes element k of everything that is written.
/// Reduce: everything that is written gets the sum (maximum, ...) of element k of all that is read.
/// A region in the blocks of several ranks counts once for each block.
/// Clear: everything that is written becomes zero.
/// Where dims cut rows, all regions of a transfer are cut alike. The verifier proves collectives by
/// following the transfers through all tasks that declare some.
struct Transfer {
  enum class Kind : uint8_t { Copy, Reduce, Clear };
  Kind kind = Kind::Copy;
  Reduction reduce = Reduction::Sum;   // of Reduce
  std::vector<uint32_t> from{}, to{};  // Copy: one source; Clear: none
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// An operand that reaches the tasks of a call through a ring of shared-memory pages, which the
/// CTA's loader fills. A ring is first in, first out: the loader serves the tasks of a stream in
/// order, and the consumers take the pages in the same order.
struct Load {
  static constexpr int64_t kLine = 128, kMostBoxRow = 2048;  // bytes of a box's row
  // The alignment of pages whose boxes come as lines: chunks are swizzled within eight lines.
  static constexpr int64_t kLinesAlignment = 8 * kLine;
  /// Copies of boxes through a tensor map, from an operand seen as a matrix of `pitch` columns.
  /// What lies beyond the matrix comes as zeros. A box with rows of 128 bytes comes as lines, whose
  /// 16-byte chunks are swizzled (runtime/device/tensor_cores.cuh). A box with longer rows, of up
  /// to kMostBoxRow bytes, comes row by row. Where the matrix's rows consist of runs of `run`
  /// columns, a box of lines has columns of one run, and zeros for what lies beyond that run.
  struct Box {
    int64_t rows = 0, cols = 0, pitch = 0, run = 0;  // run 0: a row
    friend bool operator==(const Box&, const Box&) = default;
  };
  uint32_t operand = 0;    // index into Call::operands
  uint32_t ring = 0;       // of the CTA's rings (Resources)
  int64_t pages = 1;       // the most that a task holds at a time
  int64_t page_bytes = 0;  // the most that it fills of a page
  std::optional<Box> box;  // none: rows and elements, as the function likes
  /// Whether the loader may run ahead of the task's waits; else it loads after them.
  bool ahead = false;
  friend bool operator==(const Load&, const Load&) = default;
};

/// A use of a device function by an op of the graph: maco::ops::<function> with these parameters on
/// these buffers. Calls with equal function and parameters share one kind of task in the emitted
/// code.
struct Call {
  std::string op;        // name of the graph's op
  std::string op_kind;   // "matmul"
  std::string function;  // "matmul"
  /// What the function does besides, in the order of its stages: "norm", "pair".
  std::vector<std::string> stages;
  std::vector<Param> params;
  std::vector<BufferId> operands;
  std::vector<Transfer> transfers;
  std::vector<Load> loads;  // by operand
  Loc loc;                  // of the graph's op; neither printed nor compared
  friend bool operator==(const Call&, const Call&) = default;
};
/// The function and its stages, as messages and tables name them: "matmul with pair, norm".
std::string function_text(const Call& call);

enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  RingShift,
  Barrier,
  Message,
  Zeros
};
inline constexpr size_t kCollectiveKinds = 9;
std::string_view name(CollectiveKind kind);
/// message and zeros are for ranks r of `ranks` only: an op has several of them, which together
/// cover all ranks.
struct Collective {
  std::string op;
  CollectiveKind kind = CollectiveKind::Barrier;
  BufferId in{}, out{};               // unset for a barrier; zeros: `in` is `out`
  Reduction reduce = Reduction::Sum;  // of allreduce and reduce_scatter
  int64_t peer = 0;                   // broadcast: the root; ring_shift, message: the distance
  std::string sender{};               // message: the sending op; others: the op that sends `in`
  uint64_t ranks = ~uint64_t{0};      // bit r: whether it says something of rank r
  bool of_some() const { return kind == CollectiveKind::Message || kind == CollectiveKind::Zeros; }
  friend bool operator==(const Collective&, const Collective&) = default;
};

enum class Role : uint8_t { Compute, Comm };
std::string_view name(Role role);

enum class EventKind : uint8_t {
  Local,  // a counter in the rank's memory: `count` arrivals a launch, at gpu scope
  // One word for each source rank, in the waiting rank's symmetric memory. The source's task stores
  // the epoch, at sys scope.
  Peer,
  // No word of its own: the flag is inside the data (slots with `packets`), and the reading task
  // polls it.
  Packet,
  // A counter like Local, but relaxed. It says when it is worth looking at temporaries with
  // packets, and orders nothing: only the packets' flags show that the signalling tasks' data is
  // there.
  Hint,
};
std::string_view name(EventKind kind);
/// Whether the event is a counter in the rank's memory, which counts all of its signals.
constexpr bool is_counter(EventKind kind) {
  return kind == EventKind::Local || kind == EventKind::Hint;
}
/// Whether the data that the event's signals announce comes in packets, which may arrive before or
/// after a signal.
constexpr bool is_about_packets(EventKind kind) {
  return kind == EventKind::Packet || kind == EventKind::Hint;
}
/// The threads for which a release and its acquire order memory: those of the GPU, or those of all
/// GPUs and of the host.
enum class Scope : uint8_t { Gpu, Sys };
std::string_view name(Scope scope);
struct Event {
  std::string name;
  EventKind kind = EventKind::Local;
  uint32_t count = 1;  // counters: signals a launch on each rank; others: 1 a source
  /// The scope of its signals and waits. Unset: what the kind needs, which is Gpu for Local and Sys
  /// for the others.
  std::optional<Scope> scope{};
  Scope reach() const { return scope.value_or(is_counter(kind) ? Scope::Gpu : Scope::Sys); }
  friend bool operator==(const Event&, const Event&) = default;
};
/// The task starts when `event` has its full count of launch (e - lag), e being this launch. Peer
/// and Packet events need it from all of `from`.
struct Wait {
  EventId event{};
  RankRef from;
  uint32_t lag = 0;
  bool relaxed = false;  // without an acquire: what the signalling task wrote may not be visible
  friend bool operator==(const Wait&, const Wait&) = default;
};
/// When the task has ended, it adds one to a counter, or stores the epoch into a Peer event's word
/// on all ranks of `to`.
struct Signal {
  EventId event{};
  RankRef to;
  bool relaxed = false;  // without a release: it may be seen before what the task did
  friend bool operator==(const Signal&, const Signal&) = default;
};

/// What one CTA runs to completion: tile `tile` of a call. On a rank that `ranks` excludes, the
/// task does nothing but signal its Local events, so that counts don't depend on the rank.
struct Task {
  CallId call{};
  uint32_t tile = 0;
  Role role = Role::Compute;
  Priority priority = Priority::Normal;
  uint64_t ranks = ~uint64_t{0};  // bit r: runs on rank r (world <= 64)
  std::vector<Access> accesses;
  /// The calls of ops whose tasks on the same rank must have ended before this one starts, although
  /// no data requires it (`after`, phases, overlap, regions, barriers). insert-sync turns them into
  /// waits; the verifier checks a synced Program against them.
  std::vector<CallId> after;
  std::vector<Wait> waits;
  std::vector<Signal> signals;
  int32_t sm = -1;     // scheduled: the CTA
  int32_t place = -1;  // scheduled: position in the CTA's stream, from 0 without gaps
  /// Scheduled: the task works together with its mate on the neighbouring CTA, so that neither ends
  /// before the other has begun. CTAs 2k and 2k + 1 are neighbours; the n-th mated tasks of both
  /// are mates.
  bool mated = false;
  friend bool operator==(const Task&, const Task&) = default;
};

/// CTAs [begin, end) have this role, as a graph's RoleRange says of SMs. `ops`: the kinds of ops
/// that run there; empty: all.
struct CtaRange {
  Role role = Role::Compute;
  int32_t begin = 0, end = 0;
  std::vector<std::string> ops;
  friend bool operator==(const CtaRange&, const CtaRange&) = default;
};

/// The shape of a CTA, and what it uses of its SM, which runs no other CTA.
struct Resources {
  int32_t consumers = 0;   // threads that run tasks
  int32_t loaders = 0;     // threads behind them, which fill pages
  int32_t signallers = 0;  // threads behind those, which signal for the consumers; 0: none
  int32_t registers = 0;   // of a thread, at most
  // Threads that exit at once. They complete a group of kRegisterGroup threads, the unit in which
  // registers are divided.
  int32_t spare = 0;
  // Registers of a consumer thread, and of any other thread, once its role has begun. 0:
  // `registers`, undivided.
  int32_t consumer_registers = 0, loader_registers = 0;
  int64_t head_bytes = 0;     // shared memory for the CTA's own state
  int64_t scratch_bytes = 0;  // shared memory for the running task
  int32_t pages = 0;          // of shared memory, between loaders and consumers
  int64_t page_bytes = 0;
  static constexpr int32_t kRegisterGroup = 128;
  int32_t threads() const { return consumers + loaders + signallers + spare; }
  bool divides_registers() const { return consumer_registers != 0 || loader_registers != 0; }
  /// How many tasks the signallers prepare ahead of the consumers, which takes a head of at least
  /// kPreparedHeadBytes. Beside a ring there are fewer, so that another page fits.
  static constexpr int64_t kPreparedHeadBytes = 3072;
  int32_t prepared() const { return signallers == 0 ? 0 : loaders > 0 ? 3 : 4; }
  int64_t shared_bytes() const { return head_bytes + scratch_bytes + pages * page_bytes; }
  friend bool operator==(const Resources&, const Resources&) = default;
};
/// What the target has to offer.
struct Limits {
  int32_t sms = 0;           // each runs one CTA of the grid
  int32_t threads = 0;       // of a CTA
  int32_t registers = 0;     // of an SM
  int64_t shared_bytes = 0;  // of a CTA
  /// Symmetric memory of a rank, in bytes, that the graph's `comm_buffer_bytes` allows. Unset: no
  /// limit.
  std::optional<int64_t> symmetric_bytes{};
  Loc symmetric_loc{};  // where that is said
  friend bool operator==(const Limits&, const Limits&) = default;
};

/// A graph, or none, that the copies of a Program share, since nobody changes it. Two are equal if
/// the graphs are. Threads may use it at once.
class SharedGraph {
 public:
  SharedGraph() = default;
  SharedGraph(Graph graph)  // NOLINT: a graph is a shared one
      : graph_(std::make_shared<const Graph>(std::move(graph))) {}
  explicit operator bool() const { return graph_ != nullptr; }
  const Graph& operator*() const { return *graph_; }
  const Graph* operator->() const { return graph_.get(); }
  /// Whether both are one object.
  bool same(const SharedGraph& other) const { return graph_ == other.graph_; }
  friend bool operator==(const SharedGraph& a, const SharedGraph& b) {
    return a.same(b) || (a && b && *a == *b);
  }

 private:
  std::shared_ptr<const Graph> graph_;
};

struct Program {
  std::string name;
  Stage stage = Stage::Tiled;
  int64_t world = 1;
  std::string target;           // "sm_90a", "cpu"; see compiler/cost/machine.h
  std::string board;            // "h200"; empty: the target's usual one
  std::vector<CtaRange> roles;  // disjoint, within [0, ctas); a CTA without a role runs no task
  int32_t ctas = 0;
  Resources uses;
  Limits limits;
  std::vector<Variable> variables;
  std::vector<Value> values;
  std::vector<Buffer> buffers;
  std::vector<Call> calls;
  std::vector<Collective> collectives;
  std::vector<Task> tasks;  // in an order in which dependencies on a rank point forward
  std::vector<Event> events;
  int64_t arena_bytes = 0;      // planned: temporaries of a rank
  int64_t symmetric_bytes = 0;  // planned: slots of a rank, all rotations
  /// The graph whose ops were cut into these tasks; none if somebody wrote the Program without a
  /// graph. It says what the calls have to compute.
  SharedGraph graph;
  friend bool operator==(const Program&, const Program&) = default;

  /// The range of a name in an expression: a variable, `rank` or `world`.
  std::optional<Interval> range_of(std::string_view name) const;
  /// As Graph::typical_of.
  std::optional<int64_t> typical_of(std::string_view name) const;
  /// How many flags the packets of a launch use: one more than the largest Buffer::use.
  int64_t packet_uses() const;
  /// Planned: where symmetric memory ends, together with the places of wires behind it.
  int64_t slots_end() const;
  /// Planned: the arena's first bytes, in which all temporaries with packets lie.
  int64_t packet_bytes() const;

  Buffer& operator[](BufferId id) { return buffers[index(id)]; }
  const Buffer& operator[](BufferId id) const { return buffers[index(id)]; }
  Call& operator[](CallId id) { return calls[index(id)]; }
  const Call& operator[](CallId id) const { return calls[index(id)]; }
  Task& operator[](TaskId id) { return tasks[index(id)]; }
  const Task& operator[](TaskId id) const { return tasks[index(id)]; }
  Event& operator[](EventId id) { return events[index(id)]; }
  const Event& operator[](EventId id) const { return events[index(id)]; }
};

/// What the region's block, or `from`, adds to its row numbers in a task of `rank`: the least and
/// the most, over all blocks that the region names and all values at launch. Others counts as all
/// ranks: a rank's own block lies between those of others, and passes ask for a rank that stands
/// for all.
Interval shift_of(const Program& program, const Region& region, int rank);

/// The streams of a scheduled Program: for each CTA its tasks in order.
std::vector<std::vector<TaskId>> streams(const Program& program);

/// Whether two tasks may be mates: they must be of one call, run on the same ranks, and read the
/// same parts of the operands that the call loads. Then a proof about one task's reads also holds
/// for what the other reads for it.
bool may_be_mates(const Program& program, const Task& one, const Task& other);
/// For each task of a scheduled Program: its mate; nothing where it isn't mated or has none.
std::vector<std::optional<TaskId>> find_mates(const Program& program);

/// "matmul 'down' tile 3": how reports name a task; "allreduce 'y' (put) tile 0" where the op has
/// several device functions.
std::string describe(const Program& program, TaskId task);

}  // namespace maco::ir
