// Ids, bounds, who may write what, addresses, streams, roles. Later proofs rely on every word of
// this: they index without looking.
#include "compiler/verify/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "ir/ranks.h"

namespace maco::verify {
namespace {

using ir::Buffer;
using ir::BufferKind;
using ir::EventKind;
using ir::id_of;
using ir::Program;
using ir::RankRef;
using ir::Region;
using ir::Stage;
using ir::Task;
using ir::TaskId;

constexpr int64_t kMaxCtas = 1 << 16;
constexpr int64_t kMaxRotation = 64;
// The most bytes of a buffer or an arena. A tensor of ir::kMaxTensorBytes fits as packets with all
// copies, and sums of a few stay far from overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 56;
constexpr int64_t kMaxMemory = int64_t{1} << 50;  // of a rank, as ir::Manifest has it
constexpr uint32_t kMaxLag = 64;
constexpr int64_t kMaxUse = (1 << 16) - 1;  // a kernel's tables have 16 bits for it

class Structure {
 public:
  Structure(const Program& program, Reporter& reporter) : p_(program), report_(reporter) {}

  void run() {
    if (p_.world < 1 || p_.world > ir::kMaxWorld) {
      report_.error(fmt::format("world is {}, but has to be 1 to {}", p_.world, ir::kMaxWorld));
      return;
    }
    if (p_.ctas < 0 || p_.ctas > kMaxCtas) {
      report_.error(fmt::format("ctas is {}, but has to be 0 to {}", p_.ctas, kMaxCtas));
      return;
    }
    world_ = static_cast<int>(p_.world);
    names();
    variables();
    for (size_t i = 0; i < p_.values.size(); ++i) value(i);
    for (const Buffer& b : p_.buffers) buffer(b);
    for (const ir::Call& c : p_.calls) call(c);
    for (const ir::Collective& c : p_.collectives) collective(c);
    for (const ir::Event& e : p_.events)
      if (!is_counter(e.kind) && e.count != 1)
        report_.error(fmt::format(
            "event '{}' is a {} event with count {}; it has one signal from each source", e.name,
            name(e.kind), e.count));
    if (report_.failed()) return;
    for (size_t i = 0; i < p_.tasks.size(); ++i) task(id_of<TaskId>(i));
    if (report_.failed()) return;
    order();
    if (p_.stage >= Stage::Planned) addresses();
    if (p_.stage >= Stage::Scheduled) schedule();
    for (size_t i = 0; i < p_.tasks.size() && p_.stage < Stage::Scheduled; ++i)
      if (p_.tasks[i].mated) {
        const auto id = id_of<TaskId>(i);
        report_.error(id, fmt::format("{} is mated before it has a CTA", describe(p_, id)));
        break;
      }
  }

 private:
  /// Names go into comments of the kernel and into reports: a line of text, in which no backslash
  /// joins the next.
  void text(std::string_view name, std::string_view what) {
    const auto wrong = [](char c) { return c < ' ' || c > '~' || c == '\\'; };
    if (std::any_of(name.begin(), name.end(), wrong))
      report_.error(fmt::format(
          "the name of {} has control characters, backslashes or characters that aren't ASCII",
          what));
  }
  void names() {
    text(p_.name, "the Program");
    for (const ir::Variable& v : p_.variables) text(v.name, "a dim or scalar");
    for (const Buffer& b : p_.buffers) {
      text(b.name, "a buffer");
      text(b.tensor, "a tensor");
    }
    for (const ir::Call& c : p_.calls)
      for (const std::string* name : {&c.op, &c.op_kind, &c.function}) text(*name, "a call");
    for (const ir::Call& c : p_.calls)
      for (const std::string& stage : c.stages) text(stage, "a stage of a call");
    for (const ir::Collective& c : p_.collectives) {
      text(c.op, "a collective");
      text(c.sender, "the sender of a collective");
    }
    for (const ir::Event& e : p_.events) text(e.name, "an event");
  }
  void variables() {
    std::set<std::string_view> names = {"rank", "world"};
    for (const ir::Variable& v : p_.variables) {
      if (!names.insert(v.name).second)
        report_.error(fmt::format("there are two variables '{}'", v.name));
      if (v.range.lo > v.range.hi)
        report_.error(
            fmt::format("'{}' has the empty range [{}, {}]", v.name, v.range.lo, v.range.hi));
      else if (v.typical && (*v.typical < v.range.lo || *v.typical > v.range.hi))
        report_.error(fmt::format("'{}' is typically {}, which is not within [{}, {}]", v.name,
                                  *v.typical, v.range.lo, v.range.hi));
    }
  }
  /// What an expression can be at launch. Reports where that can't be said.
  std::optional<ir::Interval> bounds(const ir::Expr& e, const std::string& what) {
    for (const std::string& name : e.vars())
      if (!p_.range_of(name)) {
        report_.error(
            fmt::format("{} is {}, but there is no dim or scalar '{}'", what, e.str(), name));
        return std::nullopt;
      }
    auto range = ir::bounds(e, [&](std::string_view name) { return p_.range_of(name); });
    if (!range)
      report_.error(fmt::format("{} is {}, which may divide by zero or overflow", what, e.str()));
    return range;
  }
  void value(size_t i) {
    const ir::Value& v = p_.values[i];
    const auto range = bounds(v.expr, fmt::format("value %{}", i));
    if (range && (range->lo < v.range.lo || range->hi > v.range.hi))
      report_.error(fmt::format("value %{} is {}, which is {} to {} and not within [{}, {}]", i,
                                v.expr.str(), range->lo, range->hi, v.range.lo, v.range.hi));
  }

  void buffer(const Buffer& b) {
    const auto rows = bounds(b.rows, fmt::format("the number of rows of buffer '{}'", b.name));
    if (rows && (rows->lo < 0 || rows->hi > b.max_rows))
      report_.error(fmt::format("buffer '{}' has {} rows, which is {} to {} and not at most {}",
                                b.name, b.rows.str(), rows->lo, rows->hi, b.max_rows));
    int64_t elements = 0, bytes = 0;
    if (b.max_rows < 1 || b.cols < 1 || __builtin_mul_overflow(b.max_rows, b.cols, &elements) ||
        __builtin_mul_overflow(elements, 16, &bytes) || bytes > kMaxBytes)
      report_.error(fmt::format("buffer '{}' of {} x {} elements is empty or too large", b.name,
                                b.max_rows, b.cols));
    if (b.rotation < 1 || b.rotation > kMaxRotation)
      report_.error(fmt::format("buffer '{}' has {} copies, but 1 to {} are possible", b.name,
                                b.rotation, kMaxRotation));
    // Epochs are 32 bits and wrap, and a launch's copy is its epoch modulo the rotation.
    else if ((b.rotation & (b.rotation - 1)) != 0)
      report_.error(
          fmt::format("buffer '{}' has {} copies, which is no power of two: where epochs "
                      "wrap, at 2^32, a copy would be used twice in a row",
                      b.name, b.rotation));
    if (b.use < 0 || b.use > kMaxUse || (b.use > 0 && !b.packets))
      report_.error(fmt::format(
          "buffer '{}' has use {}: buffers with packets have uses 0 to {}, others have none",
          b.name, b.use, kMaxUse));
    if (b.kind != BufferKind::Slot && b.rotation != 1)
      report_.error(fmt::format("buffer '{}' is no slot, but has a rotation", b.name));
    if (b.wire && (b.kind != BufferKind::Slot || !b.packets))
      report_.error(fmt::format("buffer '{}' is a wire, but no slot with packets", b.name));
    if (b.packets && b.kind != BufferKind::Slot && b.kind != BufferKind::Temp)
      report_.error(fmt::format("buffer '{}' is the caller's, but has packets", b.name));
    if (b.own_packets()) own_packets(b);
  }

  void own_packets(const Buffer& b) {
    const int64_t size = size_of(b.dtype);
    if (size != 2 && size != 4)
      report_.error(fmt::format("temporary '{}' has packets of {} byte, but they are of 2 or 4",
                                b.name, size));
    else if (b.cols * size % 4 != 0)
      report_.error(fmt::format("temporary '{}' has packets, but rows of {} bytes, no whole words",
                                b.name, b.cols * size));
    else if (b.use != 0)
      report_.error(
          fmt::format("temporary '{}' has use {}, but only slots have uses", b.name, b.use));
    // Rows that a launch leaves out would have flags that are older than one launch.
    else if (!b.rows.is_constant())
      report_.error(
          fmt::format("temporary '{}' has packets, but its rows depend on dims: packets beyond "
                      "them would keep flags of earlier launches",
                      b.name));
  }

  void call(const ir::Call& c) {
    for (ir::BufferId b : c.operands)
      if (index(b) >= p_.buffers.size())
        report_.error(fmt::format("an operand of {} '{}' is buffer #{}, which doesn't exist",
                                  c.function, c.op, index(b)),
                      c.loc);
    for (const ir::Param& param : c.params) {
      const auto* ref = std::get_if<ir::ValueRef>(&param.value);
      const uint32_t* v = ref ? std::get_if<uint32_t>(&ref->v) : nullptr;
      if (v && *v >= p_.values.size())
        report_.error(fmt::format("parameter '{}' of {} '{}' is value %{}, which doesn't exist",
                                  param.name, c.function, c.op, *v),
                      c.loc);
    }
  }

  void collective(const ir::Collective& c) {
    if (c.peer < 0 || c.peer >= world_)
      report_.error(fmt::format("collective '{}' names rank {} of {}", c.op, c.peer, world_));
    if (c.kind == ir::CollectiveKind::Barrier) return;
    for (ir::BufferId b : {c.in, c.out})
      if (index(b) >= p_.buffers.size())
        report_.error(
            fmt::format("collective '{}' has buffer #{}, which doesn't exist", c.op, index(b)));
  }

  void task(TaskId id) {
    const Task& t = p_[id];
    if (index(t.call) >= p_.calls.size()) {
      report_.error(
          fmt::format("task {} is of call {}, which doesn't exist", index(id), index(t.call)));
      return;
    }
    for (const ir::Access& a : t.accesses) access(id, a);
    transfers(id);
    for (ir::CallId c : t.after)
      if (index(c) >= p_.calls.size())
        report_.error(id, fmt::format("{} comes after call {}, which doesn't exist",
                                      describe(p_, id), index(c)));
    for (const ir::Wait& w : t.waits) {
      if (!event(id, w.event, w.from)) continue;
      if (w.lag > kMaxLag)
        report_.error(id, fmt::format("{} waits {} launches back; {} are possible",
                                      describe(p_, id), w.lag, kMaxLag));
      if (is_counter(p_[w.event].kind) && w.from != RankRef::self())
        report_.error(id, fmt::format("{} waits for the local event '{}' of {}", describe(p_, id),
                                      p_[w.event].name, to_string(w.from)));
    }
    for (const ir::Signal& s : t.signals) {
      if (!event(id, s.event, s.to)) continue;
      if (is_counter(p_[s.event].kind) && s.to != RankRef::self())
        report_.error(id, fmt::format("{} signals the local event '{}' on {}", describe(p_, id),
                                      p_[s.event].name, to_string(s.to)));
    }
  }

  // All tasks of a call that moves data touch the same buffers in the same order.
  void transfers(TaskId id) {
    const Task& t = p_[id];
    const std::vector<ir::Transfer>& list = p_[t.call].transfers;
    if (list.empty()) return;
    for (const ir::Transfer& x : list) {
      if (x.kind == ir::Transfer::Kind::Clear && !x.from.empty())
        report_.error(id, fmt::format("{} clears what it moves data to", describe(p_, id)));
      for (uint32_t a : x.from)
        if (names_access(id, a) && t.accesses[a].kind == ir::AccessKind::MayWrite)
          report_.error(id, fmt::format("{} moves data from access {}, which it may leave "
                                        "unwritten",
                                        describe(p_, id), a));
      for (uint32_t a : x.to)
        if (names_access(id, a) && !t.accesses[a].writes())
          report_.error(id, fmt::format("{} moves data to access {}, which it only reads",
                                        describe(p_, id), a));
    }
    const auto [first, fresh] = movers_.emplace(index(t.call), index(id));
    if (fresh) return;
    const Task& other = p_.tasks[first->second];
    const bool same =
        std::equal(t.accesses.begin(), t.accesses.end(), other.accesses.begin(),
                   other.accesses.end(), [](const ir::Access& a, const ir::Access& b) {
                     return a.region.buffer == b.region.buffer;
                   });
    if (!same)
      report_.error(id, fmt::format("{} moves data between other buffers than {}", describe(p_, id),
                                    describe(p_, id_of<TaskId>(first->second))));
  }
  bool names_access(TaskId id, uint32_t a) {
    const size_t count = p_[id].accesses.size();
    if (a < count) return true;
    report_.error(
        id, fmt::format("{} moves data of access {}, but has {}", describe(p_, id), a, count));
    return false;
  }

  bool event(TaskId id, ir::EventId e, RankRef ref) {
    if (index(e) >= p_.events.size()) {
      report_.error(
          id, fmt::format("{} names event #{}, which doesn't exist", describe(p_, id), index(e)));
      return false;
    }
    return ranks(id, ref);
  }
  bool ranks(TaskId id, RankRef ref) {
    // A kernel adds shifts to ranks in 32 bits.
    if (ref.kind == RankRef::Kind::Shift && (ref.n < -ir::kMaxWorld || ref.n > ir::kMaxWorld)) {
      report_.error(id, fmt::format("{} names the rank {} from its own; {} are possible",
                                    describe(p_, id), ref.n, ir::kMaxWorld));
      return false;
    }
    if (ref.kind != RankRef::Kind::Rank || (ref.n >= 0 && ref.n < world_)) return true;
    report_.error(id, fmt::format("{} names rank {} of {}", describe(p_, id), ref.n, world_));
    return false;
  }

  void access(TaskId id, const ir::Access& a) {
    const Task& t = p_[id];
    const Region& r = a.region;
    if (index(r.buffer) >= p_.buffers.size()) {
      report_.error(id, fmt::format("{} touches buffer #{}, which doesn't exist", describe(p_, id),
                                    index(r.buffer)));
      return;
    }
    if (!ranks(id, r.where) || !ranks(id, r.block.ref)) return;
    if (r.block.value && *r.block.value >= p_.values.size()) {
      report_.error(id,
                    fmt::format("{} touches a block of '{}' of value %{} rows, which doesn't exist",
                                describe(p_, id), p_[r.buffer].name, *r.block.value));
      return;
    }
    const Buffer& b = p_[r.buffer];
    if (r.from && *r.from >= p_.values.size()) {
      report_.error(id,
                    fmt::format("{} touches rows of '{}' from value %{} on, which doesn't exist",
                                describe(p_, id), b.name, *r.from));
      return;
    }
    if (r.from &&
        (b.kind != BufferKind::State || r.block.any() || a.kind == ir::AccessKind::Write)) {
      report_.error(id, fmt::format("{} touches rows of '{}' from value %{} on, but may do so only "
                                    "with a state, whole, to read or perhaps to write",
                                    describe(p_, id), b.name, *r.from));
      return;
    }
    for (int rank = 0; rank < world_; ++rank) {
      if (!((t.ranks >> rank) & 1)) continue;
      if (!inside(p_, r, b, rank)) {
        report_.error(
            id, fmt::format("{} {} outside buffer '{}', which has {} x {} elements, on rank {}: "
                            "rows {} to {}{}, columns {} to {} of {}",
                            describe(p_, id), a.writes() ? "writes" : "reads", b.name, b.max_rows,
                            b.cols, rank, r.r0, r.r1,
                            r.block.any() ? " of block " + to_string(p_, r.block)
                            : r.from      ? " from " + p_.values[*r.from].expr.str()
                                          : "",
                            r.c0, r.c1, r.pitch));
        break;
      }
      if (!r.block.any()) break;  // the same on all ranks
    }
    if (b.packets && r.pitch != b.cols)
      report_.error(id, fmt::format("{} sees the packets of '{}' with {} columns instead of {}: it "
                                    "would look for their flags in other places",
                                    describe(p_, id), b.name, r.pitch, b.cols));
    if (b.own_packets() && (a.kind == ir::AccessKind::MayWrite || r.block.any()))
      report_.error(id, fmt::format("{} {} the packets of temporary '{}', which every launch has "
                                    "to send",
                                    describe(p_, id),
                                    r.block.any() ? "sees in blocks" : "may write", b.name));
    if (a.writes() && (b.kind == BufferKind::Input || b.kind == BufferKind::Param))
      report_.error(id, fmt::format("{} writes {} '{}', which belongs to the caller",
                                    describe(p_, id), name(b.kind), b.name));
    // What is visible to a rank's caller, or private to a rank, no peer may touch: the host reads
    // it when its own kernel has ended.
    if (r.where == RankRef::self() || (a.writes() && b.kind == BufferKind::Slot)) return;
    for (int rank = 0; rank < world_; ++rank) {
      if (!((t.ranks >> rank) & 1)) continue;
      if (const ir::Ranks named = resolve(r.where, rank, world_);
          named.size() == 1 && named.front() == rank)
        continue;
      report_.error(
          id, fmt::format("{} on rank {} {} {} '{}' of {}: peers may only write, and only slots",
                          describe(p_, id), rank, a.writes() ? "writes" : "reads", name(b.kind),
                          b.name, to_string(r.where)));
      break;
    }
  }

  static bool inside(const Program& p, const Region& r, const Buffer& b, int rank) {
    int64_t r0 = 0, r1 = 0, last = 0;
    if (r.pitch < 1 || r.c0 < 0 || r.c1 < r.c0 || r.c1 > r.pitch || r.r1 < r.r0) return false;
    // Values have 64 bits, worlds 6: no shift overflows once the rows of a block are in bounds.
    const ir::Interval rows = r.from ? p.values[*r.from].range
                              : r.block.value
                                  ? p.values[*r.block.value].range
                                  : ir::Interval{.lo = r.block.rows, .hi = r.block.rows};
    if (rows.lo < -kMaxBytes || rows.hi > kMaxBytes) return false;
    const ir::Interval shift = shift_of(p, r, rank);
    if (__builtin_add_overflow(r.r0, shift.lo, &r0) ||
        __builtin_add_overflow(r.r1, shift.hi, &r1) || r0 < 0)
      return false;
    if (r0 == r1 || r.c0 == r.c1) return true;
    if (__builtin_mul_overflow(r1 - 1, r.pitch, &last) || __builtin_add_overflow(last, r.c1, &last))
      return false;
    return last <= b.max_elements();
  }

  // The list of tasks is the meaning of the Program: `after` points back.
  void order() {
    std::vector<int64_t> last(p_.calls.size(), -1);
    for (size_t i = 0; i < p_.tasks.size(); ++i)
      last[index(p_.tasks[i].call)] = static_cast<int64_t>(i);
    for (size_t i = 0; i < p_.tasks.size(); ++i) {
      const Task& t = p_.tasks[i];
      const auto id = id_of<TaskId>(i);
      for (ir::CallId c : t.after) {
        if (last[index(c)] >= static_cast<int64_t>(i)) {
          report_.error(id,
                        fmt::format("order: {} comes after '{}', which the list of tasks has later",
                                    describe(p_, id), p_[c].op));
        }
      }
    }
  }

  void addresses() {
    // Behind symmetric memory lie words.
    if (p_.arena_bytes < 0 || p_.arena_bytes > kMaxMemory || p_.symmetric_bytes < 0 ||
        p_.symmetric_bytes > kMaxMemory || p_.symmetric_bytes % 4 != 0)
      report_.error(fmt::format("an arena of {} and symmetric memory of {} bytes are not possible",
                                p_.arena_bytes, p_.symmetric_bytes));
    if (p_.packet_bytes() > p_.arena_bytes)
      report_.error(fmt::format("packets take {} bytes of the arena, which has {}",
                                p_.packet_bytes(), p_.arena_bytes));
    std::vector<const Buffer*> slots, temporaries;
    for (const Buffer& b : p_.buffers) {
      const bool slot = b.kind == BufferKind::Slot;
      if (!slot && b.kind != BufferKind::Temp) {
        if (b.offset)
          report_.error(fmt::format("{} '{}' is the caller's memory, but has an address",
                                    name(b.kind), b.name));
        continue;
      }
      const int64_t bytes = slot ? b.copy_bytes() * b.rotation : b.bytes();
      const int64_t space = slot ? p_.symmetric_bytes : p_.arena_bytes;
      const std::string_view where = slot ? "symmetric memory" : "the arena";
      if (!b.offset) {
        report_.error(fmt::format("{} '{}' has no address although the Program is {}", name(b.kind),
                                  b.name, name(p_.stage)));
      } else if (*b.offset < 0 || *b.offset % 256 != 0) {
        report_.error(fmt::format("{} '{}' lies at {}, which is no multiple of 256", name(b.kind),
                                  b.name, *b.offset));
      } else if (b.wire && *b.offset <= kMaxBytes) {
        if (*b.offset < space)
          report_.error(fmt::format("wire '{}' lies at {}, but symmetric memory has {} bytes",
                                    b.name, *b.offset, space));
        slots.push_back(&b);
      } else if (*b.offset > kMaxBytes || *b.offset + bytes > space) {
        report_.error(fmt::format("{} '{}' lies at {} and takes {} bytes, but {} has {}",
                                  name(b.kind), b.name, *b.offset, bytes, where, space));
      } else if (slot) {
        slots.push_back(&b);
      } else {
        temporaries.push_back(&b);
      }
    }
    packets_apart(temporaries);
    std::stable_sort(slots.begin(), slots.end(),
                     [](const Buffer* a, const Buffer* b) { return *a->offset < *b->offset; });
    for (size_t i = 1; i < slots.size(); ++i) share(*slots[i - 1], *slots[i]);
    std::stable_sort(slots.begin(), slots.end(), [](const Buffer* a, const Buffer* b) {
      return std::pair(*a->offset, a->use) < std::pair(*b->offset, b->use);
    });
    for (size_t i = 1; i < slots.size(); ++i) {
      const Buffer &a = *slots[i - 1], &b = *slots[i];
      if (a.packets && b.packets && *a.offset == *b.offset && a.use == b.use)
        report_.error(
            fmt::format("slots '{}' and '{}' lie in one place and both have use {}: their packets "
                        "can't be told apart",
                        a.name, b.name, a.use));
    }
  }
  // Whatever else lay among the packets of a temporary could look like one.
  void packets_apart(std::vector<const Buffer*>& temporaries) {
    std::stable_sort(temporaries.begin(), temporaries.end(),
                     [](const Buffer* a, const Buffer* b) { return *a->offset < *b->offset; });
    const Buffer *last = nullptr, *packets = nullptr;  // those that reach farthest
    const auto end = [](const Buffer* b) { return *b->offset + b->bytes(); };
    for (const Buffer* b : temporaries) {
      const Buffer* other = b->packets ? last : packets;
      if (other && end(other) > *b->offset)
        report_.error(
            fmt::format("temporaries '{}' and '{}' share bytes, but packets share theirs "
                        "with nothing",
                        other->name, b->name));
      if (!last || end(b) > end(last)) last = b;
      if (b->packets && (!packets || end(b) > end(packets))) packets = b;
    }
  }
  // `b` begins where `a` does or behind that. If the two slots share bytes, they share all, so that
  // the copies of different launches are apart. Both must have packets or neither: other data could
  // look like a packet.
  void share(const Buffer& a, const Buffer& b) {
    if (*a.offset + a.copy_bytes() * a.rotation <= *b.offset) return;
    if (*a.offset != *b.offset || a.rotation != b.rotation || a.copy_bytes() != b.copy_bytes())
      report_.error(
          fmt::format("slots '{}' and '{}' overlap: peers of different launches would meet there",
                      a.name, b.name));
    else if (a.packets != b.packets)
      report_.error(fmt::format("slots '{}' and '{}' lie in one place, but only one has packets",
                                a.name, b.name));
  }

  void schedule() {
    std::vector<const ir::CtaRange*> role_of(static_cast<size_t>(p_.ctas), nullptr);
    for (const ir::CtaRange& range : p_.roles) {
      if (range.begin < 0 || range.end < range.begin || range.end > p_.ctas) {
        report_.error(fmt::format("role {} has CTAs {} to {} of {}", name(range.role), range.begin,
                                  range.end, p_.ctas));
        continue;
      }
      for (int32_t c = range.begin; c < range.end; ++c) {
        if (role_of[static_cast<size_t>(c)]) report_.error(fmt::format("CTA {} has two roles", c));
        role_of[static_cast<size_t>(c)] = &range;
      }
    }
    if (report_.failed()) return;
    std::vector<std::vector<TaskId>> streams(static_cast<size_t>(p_.ctas));
    for (size_t i = 0; i < p_.tasks.size(); ++i) {
      const Task& t = p_.tasks[i];
      const auto id = id_of<TaskId>(i);
      if (t.sm < 0 || t.sm >= p_.ctas) {
        report_.error(id, fmt::format("{} runs on CTA {}, but there are {}", describe(p_, id), t.sm,
                                      p_.ctas));
        continue;
      }
      streams[static_cast<size_t>(t.sm)].push_back(id);
      const ir::CtaRange* role = role_of[static_cast<size_t>(t.sm)];
      if (!role) {
        report_.error(id,
                      fmt::format("{} runs on CTA {}, which has no role", describe(p_, id), t.sm));
        continue;
      }
      const std::string& kind = p_[t.call].op_kind;
      if (role->role != t.role) {
        report_.error(id, fmt::format("{} is {} work, but CTA {} is a {} worker", describe(p_, id),
                                      name(t.role), t.sm, name(role->role)));
      } else if (!role->ops.empty() &&
                 std::find(role->ops.begin(), role->ops.end(), kind) == role->ops.end()) {
        report_.error(id, fmt::format("{} runs on CTA {}, which is not for '{}'", describe(p_, id),
                                      t.sm, kind));
      }
    }
    for (size_t c = 0; c < streams.size(); ++c) {
      std::stable_sort(streams[c].begin(), streams[c].end(),
                       [&](TaskId a, TaskId b) { return p_[a].place < p_[b].place; });
      for (size_t i = 0; i < streams[c].size(); ++i) {
        if (p_[streams[c][i]].place == static_cast<int64_t>(i)) continue;
        report_.error(
            streams[c][i],
            fmt::format("the stream of CTA {} has a gap or two tasks at place {}: {} has place {}",
                        c, i, describe(p_, streams[c][i]), p_[streams[c][i]].place));
        break;
      }
    }
    if (!report_.failed()) mates();
  }

  // Each mated task has a mate, and CTAs are in clusters of two then.
  void mates() {
    const std::vector<std::optional<TaskId>> mates = ir::find_mates(p_);
    for (size_t i = 0; i < p_.tasks.size(); ++i) {
      if (!p_.tasks[i].mated) continue;
      const auto id = id_of<TaskId>(i);
      if (p_.ctas % 2 != 0) {
        report_.error(
            id, fmt::format("{} is mated, but {} CTAs are no pairs", describe(p_, id), p_.ctas));
        return;
      }
      if (!mates[i]) {
        report_.error(id, fmt::format("{} is mated, but CTA {} has no task for it",
                                      describe(p_, id), p_.tasks[i].sm ^ 1));
      } else if (!ir::may_be_mates(p_, p_.tasks[i], p_[*mates[i]])) {
        report_.error(id, fmt::format("{} and {} are mates, but not of one call, on the same ranks "
                                      "and with the same of what it loads",
                                      describe(p_, id), describe(p_, *mates[i])));
      }
    }
  }

  const Program& p_;
  Reporter& report_;
  int world_ = 1;
  std::unordered_map<size_t, size_t> movers_;  // by call: its first task, of those that move data
};

}  // namespace

void check_structure(const Program& program, Reporter& reporter) {
  Structure(program, reporter).run();
  reporter.summarise("such errors");
}

}  // namespace maco::verify
