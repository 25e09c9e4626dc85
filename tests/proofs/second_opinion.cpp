#include "tests/proofs/second_opinion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>

#include "tests/unit/block_heights.h"

namespace maco::proofs {
namespace {

using ir::Access;
using ir::BufferKind;
using ir::EventKind;
using ir::Program;
using ir::RankRef;
using ir::Task;

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool runs(const Task& t, int rank) { return (t.ranks >> rank) & 1; }
bool has(const std::vector<int>& list, int n) {
  return std::find(list.begin(), list.end(), n) != list.end();
}

/// The ranks whose memory an access of a task on `runner` reaches.
std::vector<int> reaches(const Program& p, const Access& a, int runner) {
  if (p[a.region.buffer].kind != BufferKind::Slot) return {runner};
  return ir::resolve(a.region.where, runner, static_cast<int>(p.world));
}

/// In copy 0, from the buffer's address or the tensor's begin.
Bytes bytes_of(const Program& p, const Access& a, int runner) {
  const ir::Region& r = a.region;
  const ir::Buffer& b = p[r.buffer];
  const ir::Interval shift = shift_of(p, r, runner);
  const int64_t size = size_of(b.dtype), first = r.r0 + shift.lo, rows = r.r1 + shift.hi - first;
  if (rows <= 0 || r.c1 <= r.c0) return {};
  const int64_t base = b.offset.value_or(0);
  if (!b.packets)
    return {base + (first * r.pitch + r.c0) * size, r.pitch * size, rows, (r.c1 - r.c0) * size};
  // Each element beside its flag.
  if (b.own_packets()) {
    const int64_t row = up(b.cols * size, 4) * 2;
    return {base + first * row + r.c0 * size * 2, row, rows, (r.c1 - r.c0) * size * 2};
  }
  // 4 bytes of payload, 4 of flag.
  const int64_t begin = r.c0 * size / 4, end = up(r.c1 * size, 4) / 4,
                row = up(b.cols * size, 4) / 4;
  return {base + (first * row + begin) * 8, row * 8, rows, (end - begin) * 8};
}

/// Buffers of one space may share bytes.
std::string space_of(const ir::Buffer& b) {
  if (b.kind == BufferKind::Temp) return "<arena>";
  if (b.kind == BufferKind::Slot) return "<slots>" + fmt::to_string(*b.offset);
  return b.tensor.empty() ? "<internal>" + b.name : b.tensor;
}

int max_rotation(const Program& p) {
  int64_t most = 0;
  for (const ir::Buffer& b : p.buffers)
    if (b.kind == BufferKind::Slot && p.world > 1) most = std::max(most, b.rotation);
  return static_cast<int>(most);
}

// --- what stands by itself: bounds, addresses, streams ---

/// Whether the list of tasks reads an element of a temporary or output before writing it, or leaves
/// an element of an output unwritten: element by element, at the maximum rows.
bool undefined(const Program& p, int world) {
  // By buffer and rank: whether each element is written.
  std::map<std::pair<size_t, int>, std::vector<bool>> written;
  std::map<size_t, std::set<uint32_t>> by_height;
  for (const Task& t : p.tasks)
    for (const Access& a : t.accesses)
      if (a.writes() && a.region.block.value)
        by_height[index(a.region.buffer)].insert(*a.region.block.value);
  const auto is_filled = [&](size_t b) {
    return p.buffers[b].kind == BufferKind::Temp || p.buffers[b].kind == BufferKind::Output;
  };
  for (size_t b = 0; b < p.buffers.size(); ++b)
    for (int rank = 0; rank < world && is_filled(b); ++rank)
      written[{b, rank}].assign(static_cast<size_t>(p.buffers[b].max_elements()), false);
  const auto each = [&](const ir::Region& r, int rank, const auto& f) {
    std::vector<int64_t> shifts = {0};
    if (r.block.any()) {
      shifts.clear();
      for (int block : ir::resolve(r.block.ref, rank, world))
        shifts.push_back(block *
                         (r.block.value ? p.values[*r.block.value].range.hi : r.block.rows));
    }
    for (int64_t shift : shifts)
      for (int64_t row = r.r0 + shift; row < r.r1 + shift; ++row)
        for (int64_t column = r.c0; column < r.c1; ++column)
          f(static_cast<size_t>(row * r.pitch + column));
  };
  for (const Task& t : p.tasks)
    for (int rank = 0; rank < world; ++rank) {
      if (!runs(t, rank)) continue;
      for (const Access& a : t.accesses) {
        const size_t b = index(a.region.buffer);
        if (a.writes() || !is_filled(b)) continue;
        const std::vector<bool>& there = written[{b, rank}];
        bool whole = true;
        each(a.region, rank, [&](size_t i) { whole = whole && there[i]; });
        // Rows are elsewhere where blocks are lower.
        if (by_height.count(b) && !a.region.block.value) {
          const ir::Interval heights = p.values[*by_height[b].begin()].range;
          const ir::Region& r = a.region;
          const bool simple =
              by_height[b].size() == 1 && !r.block.any() && r.pitch == p.buffers[b].cols;
          whole = simple || std::find(there.begin(), there.end(), false) == there.end();
          for (int64_t h = std::max<int64_t>(heights.lo, 1); simple && h <= heights.hi; ++h)
            for (int64_t row = r.r0; row < std::min(r.r1, world * h); ++row)
              for (int64_t column = r.c0; column < r.c1; ++column)
                whole =
                    whole &&
                    there[static_cast<size_t>((row / h * heights.hi + row % h) * r.pitch + column)];
        }
        if (!whole) return true;
      }
      for (const Access& a : t.accesses) {
        const size_t b = index(a.region.buffer);
        if (!a.writes() || !is_filled(b)) continue;
        std::vector<bool>& there = written[{b, rank}];
        each(a.region, rank, [&](size_t i) { there[i] = true; });
      }
    }
  for (const auto& [key, there] : written)
    if (p.buffers[key.first].kind == BufferKind::Output &&
        std::find(there.begin(), there.end(), false) != there.end())
      return true;
  return false;
}

/// Whether a task writes bytes that it also touches as something else.
bool overwrites_its_own(const Program& p, int world) {
  for (const Task& t : p.tasks)
    for (const Access& w : t.accesses)
      for (const Access& o : t.accesses) {
        if (!w.writes() || &w == &o || (!o.writes() && o.region == w.region)) continue;
        const ir::Buffer &a = p[w.region.buffer], &b = p[o.region.buffer];
        if (space_of(a) != space_of(b)) continue;
        for (int rank = 0; rank < world; ++rank) {
          if (!runs(t, rank)) continue;
          const std::vector<int> mine = reaches(p, w, rank), others = reaches(p, o, rank);
          const bool same = std::any_of(mine.begin(), mine.end(), [&](int m) {
            return std::count(others.begin(), others.end(), m) > 0;
          });
          if (same && meet(bytes_of(p, w, rank), bytes_of(p, o, rank)) &&
              test::meet_at_some_height(p, w.region, rank, o.region, rank))
            return true;
        }
      }
  return false;
}

std::string structure(const Program& p) {
  const int world = static_cast<int>(p.world);
  for (const ir::Call& c : p.calls)
    for (const ir::Transfer& x : c.transfers)
      if (x.kind == ir::Transfer::Kind::Clear && !x.from.empty())
        return "structure: zeros that come from somewhere";
  for (const Task& t : p.tasks)
    for (const Access& a : t.accesses) {
      const ir::Region& r = a.region;
      const ir::Buffer& b = p[r.buffer];
      if (b.packets && r.pitch != b.cols) return "structure: packets seen with another pitch";
      if (b.own_packets() && (a.kind == ir::AccessKind::MayWrite || r.block.any()))
        return "structure: packets that not every launch sends";
      if (r.from &&
          (b.kind != BufferKind::State || r.block.any() || a.kind == ir::AccessKind::Write))
        return "structure: rows from a value on, not of a state that is read or may be written";
      for (int rank = 0; rank < world; ++rank) {
        if (!runs(t, rank)) continue;
        if (r.r1 > r.r0 && r.c1 > r.c0) {
          const ir::Interval shift = shift_of(p, r, rank);
          const int64_t first = r.r0 + shift.lo, last = r.r1 + shift.hi - 1;
          if (first < 0 || r.c0 < 0 || r.c1 > r.pitch ||
              last * r.pitch + r.c1 > b.max_rows * b.cols)
            return "structure: a region outside of its buffer";
        }
        const std::vector<int> where = ir::resolve(r.where, rank, world);
        const bool mine = where == std::vector<int>{rank};
        if (!mine && r.where != RankRef::self() && !(a.writes() && b.kind == BufferKind::Slot))
          return "structure: memory of a peer that is not for peers";
      }
    }
  struct Piece {
    int64_t begin, end;
    const ir::Buffer* slot;
  };
  std::vector<Piece> pieces;
  for (const ir::Buffer& b : p.buffers) {
    if (b.kind == BufferKind::Temp && *b.offset + b.bytes() > p.arena_bytes)
      return "structure: a temporary outside of the arena";
    if (b.packets && b.kind != BufferKind::Slot) {
      if (!b.own_packets() || !b.rows.is_constant() || b.use != 0 ||
          (size_of(b.dtype) != 2 && size_of(b.dtype) != 4))
        return "structure: packets that can't be";
      for (const ir::Buffer& other : p.buffers)
        if (other.kind == BufferKind::Temp && other.name != b.name &&
            *other.offset < *b.offset + b.bytes() && *b.offset < *other.offset + other.bytes())
          return "structure: packets that share bytes";
    }
    if (b.kind != BufferKind::Slot) continue;
    const int64_t end = *b.offset + up(b.bytes(), 256) * b.rotation;
    if (b.wire ? !b.packets || *b.offset < p.symmetric_bytes : end > p.symmetric_bytes)
      return "structure: a slot outside of symmetric memory, or a wire within";
    if (b.use < 0 || b.use >= 65536 || (b.use > 0 && !b.packets))
      return "structure: a use that no table holds";
    // Slots in one place are there in the same launches, and their packets differ.
    for (const Piece& other : pieces) {
      if (*b.offset >= other.end || other.begin >= end) continue;
      const bool one_place = *b.offset == other.begin && end == other.end &&
                             b.rotation == other.slot->rotation && b.packets == other.slot->packets;
      if (!one_place || (b.packets && b.use == other.slot->use))
        return "structure: two slots at one address";
    }
    pieces.push_back({*b.offset, end, &b});
  }
  std::set<std::pair<int32_t, int32_t>> places;
  std::map<int32_t, int32_t> lengths;
  for (const Task& t : p.tasks) {
    if (!places.emplace(t.sm, t.place).second) return "structure: two tasks at one place";
    ++lengths[t.sm];
    bool role = false;
    for (const ir::CtaRange& range : p.roles)
      role = role || (t.sm >= range.begin && t.sm < range.end && range.role == t.role &&
                      (range.ops.empty() ||
                       std::count(range.ops.begin(), range.ops.end(), p[t.call].op_kind) > 0));
    if (!role) return "structure: a task where its role isn't";
  }
  for (const auto& [sm, place] : places)
    if (place < 0 || place >= lengths[sm]) return "structure: a gap in a stream";
  // The list of tasks fills temporaries and outputs before it reads them, and fills all outputs.
  if (overwrites_its_own(p, world)) return "structure: a task overwrites what it touches";
  return undefined(p, world) ? "structure: a read of what nobody wrote" : "";
}

// --- operands that come through pages ---

/// Whether tasks end with a ring of `ring` pages, if they hold `held` pages at a time and take the
/// next page before they release the oldest. The function simulates them, a page at a time.
bool ring_moves(int64_t held, int64_t ring) {
  int64_t empty = ring, full = 0, taken = 0;
  for (int64_t step = 0; step < 4 * (ring + held); ++step) {
    if (taken > held)
      --taken, ++empty;
    else if (full > 0)
      --full, ++taken;
    else if (empty > 0)
      --empty, ++full;
    else
      return false;
  }
  return true;
}

std::string loads(const Program& p) {
  const int world = static_cast<int>(p.world);
  // By space and memory; with the writer's place in the list.
  std::map<std::pair<std::string, int>, std::vector<std::pair<uint32_t, Bytes>>> written;
  for (uint32_t i = 0; i < p.tasks.size(); ++i)
    for (const Access& a : p.tasks[i].accesses)
      for (int rank = 0; a.writes() && rank < world; ++rank)
        if (runs(p.tasks[i], rank))
          for (int memory : reaches(p, a, rank))
            written[{space_of(p[a.region.buffer]), memory}].push_back({i, bytes_of(p, a, rank)});
  for (size_t c = 0; c < p.calls.size(); ++c) {
    const ir::Call& call = p.calls[c];
    int64_t held = 0;
    for (const ir::Load& l : call.loads) {
      if (l.ring > 0 || l.pages < 1 || l.operand >= call.operands.size())
        return fmt::format("loads: '{}' loads what it can't", call.op);
      // Page k of the ring has these bytes, and is the target of copies of 128 bytes at a time.
      for (int64_t k = 0; k < p.uses.pages; ++k)
        if (k * p.uses.page_bytes % 128 != 0 || l.page_bytes < 1 ||
            k * p.uses.page_bytes + l.page_bytes > (k + 1) * p.uses.page_bytes)
          return fmt::format("loads: '{}' fills more than a page", call.op);
      held += l.pages;
      for (uint32_t t = 0; t < p.tasks.size(); ++t) {
        if (index(p.tasks[t].call) != c) continue;
        bool reads = false;
        for (const Access& a : p.tasks[t].accesses) {
          if (a.writes() || a.region.buffer != call.operands[l.operand]) continue;
          reads = true;
          for (int rank = 0; l.ahead && rank < world; ++rank) {
            if (!runs(p.tasks[t], rank)) continue;
            const auto at = written.find({space_of(p[a.region.buffer]), rank});
            if (at == written.end()) continue;
            const Bytes bytes = bytes_of(p, a, rank);
            for (const auto& [writer, other] : at->second)
              if (writer <= t && meet(bytes, other))
                return fmt::format("loads: {} loads ahead what is written before it",
                                   describe(p, ir::id_of<ir::TaskId>(t)));
          }
        }
        if (!reads)
          return fmt::format("loads: {} loads what it doesn't read",
                             describe(p, ir::id_of<ir::TaskId>(t)));
      }
    }
    if (!call.loads.empty() && !ring_moves(held, p.uses.pages))
      return fmt::format("loads: '{}' waits for a page that its loader has no room for", call.op);
  }
  return "";
}

// --- what a wait waits for is what will arrive ---

class Signals {
 public:
  struct Signal {
    uint32_t task;
    RankRef to;
    bool relaxed;
  };

  explicit Signals(const Program& p) : p_(p), signals_(p.events.size()), waits_(p.events.size()) {
    for (uint32_t t = 0; t < p.tasks.size(); ++t) {
      for (const ir::Signal& s : p.tasks[t].signals)
        signals_[index(s.event)].push_back({t, s.to, s.relaxed});
      for (const ir::Wait& w : p.tasks[t].waits) waits_[index(w.event)].push_back({t, w.from});
    }
  }
  /// The tasks that signal a Peer or Packet event from `source` to `rank`, once for each signal.
  std::vector<uint32_t> from(ir::EventId e, int source, int rank) const {
    std::vector<uint32_t> list;
    for (const Signal& s : signals_[index(e)])
      if (arrives(s, source, rank)) list.push_back(s.task);
    return list;
  }
  bool arrives(const Signal& s, int source, int rank) const {
    return runs(p_.tasks[s.task], source) &&
           has(ir::resolve(s.to, source, static_cast<int>(p_.world)), rank);
  }
  const std::vector<Signal>& of(ir::EventId e) const { return signals_[index(e)]; }

  std::string counts() const {
    const int world = static_cast<int>(p_.world);
    for (size_t i = 0; i < p_.events.size(); ++i) {
      const auto e = ir::id_of<ir::EventId>(i);
      const ir::Event& event = p_.events[i];
      if (is_counter(event.kind)) {
        if (signals_[i].size() != event.count || (signals_[i].empty() && !waits_[i].empty()))
          return fmt::format("count: '{}' counts to {}, {} arrive", event.name, event.count,
                             signals_[i].size());
        continue;
      }
      if (event.count != 1) return fmt::format("structure: '{}' counts sources", event.name);
      for (const auto& [task, from_ranks] : waits_[i])
        for (int rank = 0; rank < world; ++rank) {
          if (!runs(p_.tasks[task], rank)) continue;
          for (int source : ir::resolve(from_ranks, rank, world)) {
            const std::vector<uint32_t> senders = from(e, source, rank);
            if (senders.size() != 1)
              return fmt::format("count: {} signals of '{}' from rank {} to rank {}",
                                 senders.size(), event.name, source, rank);
            if (event.kind == EventKind::Packet && !flags_meet(senders[0], source, task, rank))
              return fmt::format("count: packets of '{}' that are not read", event.name);
          }
        }
      // A signal to a rank that doesn't wait for it would be half of a handshake.
      for (const auto& [task, to, relaxed] : signals_[i])
        for (int source = 0; source < world; ++source) {
          if (!runs(p_.tasks[task], source)) continue;
          for (int rank : ir::resolve(to, source, world)) {
            const bool heard = std::any_of(waits_[i].begin(), waits_[i].end(), [&](const auto& w) {
              return runs(p_.tasks[w.first], rank) &&
                     has(ir::resolve(w.second, rank, world), source);
            });
            if (!heard)
              return fmt::format("count: nobody waits for '{}' on rank {}", event.name, rank);
          }
        }
    }
    std::map<std::pair<size_t, int>, std::vector<Bytes>> packets;  // by slot and memory
    for (const Task& t : p_.tasks)
      for (const Access& a : t.accesses)
        for (int source = 0; source < world; ++source) {
          if (!a.writes() || !p_[a.region.buffer].packets || !runs(t, source)) continue;
          const Bytes bytes = bytes_of(p_, a, source);
          for (int rank : reaches(p_, a, source)) {
            std::vector<Bytes>& others = packets[{index(a.region.buffer), rank}];
            for (const Bytes& other : others)
              if (meet(bytes, other)) return "count: packets that are written twice";
            others.push_back(bytes);
          }
          for (int rank : reaches(p_, a, source))
            if (std::none_of(t.signals.begin(), t.signals.end(), [&](const ir::Signal& s) {
                  return p_[s.event].kind == (p_[a.region.buffer].own_packets()
                                                  ? EventKind::Hint
                                                  : EventKind::Packet) &&
                         has(ir::resolve(s.to, source, world), rank);
                }))
              return fmt::format("count: packets to rank {} without flags", rank);
        }
    return "";
  }

 private:
  bool flags_meet(uint32_t writer, int source, uint32_t reader, int rank) const {
    for (const Access& w : p_.tasks[writer].accesses)
      for (const Access& r : p_.tasks[reader].accesses)
        if (w.writes() && !r.writes() && w.region.buffer == r.region.buffer &&
            p_[w.region.buffer].packets && has(reaches(p_, w, source), rank) &&
            meet(bytes_of(p_, w, source), bytes_of(p_, r, rank)))
          return true;
    return false;
  }

  const Program& p_;
  std::vector<std::vector<Signal>> signals_;
  std::vector<std::vector<std::pair<uint32_t, RankRef>>> waits_;
};

// --- happens-before ---

class Graph {
 public:
  /// What an edge guarantees: only blocking; that the earlier task is over (Ended); that its writes
  /// are visible (Seen).
  enum Strength : uint8_t { Blocks, Ended, Seen };

  Graph(const Program& p, const Signals& signals) : p_(p), nodes_(p), signals_(signals) {
    const uint32_t starts = nodes_.size();  // of the launches of the ranks
    into_.resize(starts + static_cast<uint32_t>(nodes_.world * nodes_.launches));
    std::vector<bool> polls;
    for (const Task& t : p.tasks) polls.push_back(surely_polls(p, t));
    const auto streams = ir::streams(p);
    for (int launch = 0; launch < nodes_.launches; ++launch)
      for (int rank = 0; rank < nodes_.world; ++rank) {
        const uint32_t start = starts + static_cast<uint32_t>(launch * nodes_.world + rank);
        for (uint32_t t = 0; launch > 0 && t < nodes_.tasks; ++t)
          edge(nodes_.at(launch - 1, rank, t), start, Seen);
        if (launch > 0) edge(start - static_cast<uint32_t>(nodes_.world), start, Seen);
        for (const auto& stream : streams)
          for (size_t i = 0; i < stream.size(); ++i)
            edge(i == 0 ? start
                        : nodes_.at(launch, rank, static_cast<uint32_t>(index(stream[i - 1]))),
                 nodes_.at(launch, rank, static_cast<uint32_t>(index(stream[i]))), Seen);
        for (uint32_t t = 0; t < nodes_.tasks; ++t)
          if (runs(p.tasks[t], rank))
            for (const ir::Wait& w : p.tasks[t].waits) wait(w, launch, rank, t, polls[t]);
      }
  }

  /// In an order of time; false if there is a cycle.
  bool sort() {
    std::vector<uint32_t> missing(into_.size());
    std::vector<std::vector<uint32_t>> out(into_.size());
    for (uint32_t n = 0; n < into_.size(); ++n)
      for (const auto& [from, strength] : into_[n]) ++missing[n], out[from].push_back(n);
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t n = 0; n < into_.size(); ++n)
      if (missing[n] == 0) ready.push(n);
    while (!ready.empty()) {
      const uint32_t n = ready.top();
      ready.pop();
      order_.push_back(n);
      for (uint32_t to : out[n])
        if (--missing[to] == 0) ready.push(to);
    }
    return order_.size() == into_.size();
  }
  const std::vector<uint32_t>& order() const { return order_; }
  const Nodes& nodes() const { return nodes_; }

  /// Calls `each(i, ended, seen)` for each pair (x, y): whether x has ended before y starts, and
  /// whether y sees its writes.
  template <class Pairs, class Each>
  void ask(const Pairs& pairs, const Each& each) const {
    std::vector<uint32_t> firsts;
    for (const auto& pair : pairs) firsts.push_back(pair.x);
    std::sort(firsts.begin(), firsts.end());
    firsts.erase(std::unique(firsts.begin(), firsts.end()), firsts.end());
    std::vector<uint32_t> column(into_.size(), ~0u);
    for (uint32_t i = 0; i < firsts.size(); ++i) column[firsts[i]] = i;
    std::vector<std::vector<uint32_t>> by_block(firsts.size() / kBits + 1);
    for (uint32_t i = 0; i < pairs.size(); ++i) by_block[column[pairs[i].x] / kBits].push_back(i);
    struct Row {
      uint64_t ended[kBits / 64], seen[kBits / 64];
    };
    std::vector<Row> rows(into_.size());
    for (uint32_t block = 0; block < by_block.size(); ++block) {
      if (by_block[block].empty()) continue;
      for (uint32_t n : order_) {
        Row& row = rows[n];
        row = {};
        for (const auto& [from, strength] : into_[n]) {
          if (strength == Blocks) continue;
          const Row& before = rows[from];
          for (size_t k = 0; k < kBits / 64; ++k) {
            row.ended[k] |= before.ended[k];
            if (strength == Seen) row.seen[k] |= before.seen[k];
          }
          if (column[from] / kBits == block && column[from] != ~0u) {
            const uint32_t bit = column[from] % kBits;
            row.ended[bit / 64] |= uint64_t{1} << bit % 64;
            if (strength == Seen) row.seen[bit / 64] |= uint64_t{1} << bit % 64;
          }
        }
      }
      for (uint32_t i : by_block[block]) {
        const uint32_t bit = column[pairs[i].x] % kBits;
        const Row& row = rows[pairs[i].y];
        each(i, row.ended[bit / 64] >> bit % 64 & 1, row.seen[bit / 64] >> bit % 64 & 1);
      }
    }
  }

 private:
  static constexpr uint32_t kBits = 512;

  void edge(uint32_t from, uint32_t to, Strength strength) {
    into_[to].push_back({from, strength});
  }
  void wait(const ir::Wait& w, int launch, int rank, uint32_t task, bool polls) {
    const int then = launch - static_cast<int>(w.lag);
    if (then < 0) return;
    const EventKind kind = p_[w.event].kind;
    const uint32_t to = nodes_.at(launch, rank, task);
    const bool local = is_counter(kind);
    for (int source : local ? std::vector<int>{rank} : ir::resolve(w.from, rank, nodes_.world))
      for (const Signals::Signal& s : signals_.of(w.event)) {
        if (!local && !signals_.arrives(s, source, rank)) continue;
        // A flag that is seen without release and acquire, or at a scope that leaves out one end,
        // says nothing about what was done before it.
        const bool synchronises =
            !w.relaxed && !s.relaxed && (source == rank || p_[w.event].reach() == ir::Scope::Sys);
        edge(nodes_.at(then, source, s.task), to,
             kind == EventKind::Hint     ? Blocks
             : kind == EventKind::Packet ? (polls && synchronises ? Ended : Blocks)
             : synchronises              ? Seen
                                         : Blocks);
      }
  }

  const Program& p_;
  const Nodes nodes_;
  const Signals& signals_;
  std::vector<std::vector<std::pair<uint32_t, Strength>>> into_;
  std::vector<uint32_t> order_;
};

/// Data that carries its own flags: y polls exactly what x writes, of this launch or a later one,
/// or waits for other flags in the same place. (What it polls for is written after x: between two
/// writes the order is asked for, and x is first in the list.)
bool polls_for(const Program& p, const Nodes& nodes, const Signals& signals, const Conflict& c) {
  const Task &tx = p.tasks[nodes.task(c.x)], &ty = p.tasks[nodes.task(c.y)];
  const Access &ax = tx.accesses[c.access_x], &ay = ty.accesses[c.access_y];
  const ir::BufferId bx = ax.region.buffer, by = ay.region.buffer;
  if (!ax.writes() || ay.writes() || !p[bx].packets) return false;
  if (p[bx].own_packets())
    return std::any_of(ty.waits.begin(), ty.waits.end(), [&](const ir::Wait& w) {
      return bx == by && w.lag == 0 && p[w.event].kind == EventKind::Hint &&
             std::any_of(tx.signals.begin(), tx.signals.end(),
                         [&](const ir::Signal& s) { return s.event == w.event; });
    });
  if (bx != by) return p[by].packets && p[bx].use != p[by].use;
  for (const ir::Wait& w : ty.waits) {
    const int source = nodes.rank(c.x);
    if (p[w.event].kind != EventKind::Packet ||
        !has(ir::resolve(w.from, nodes.rank(c.y), nodes.world), source) ||
        nodes.launch(c.x) + static_cast<int>(w.lag) > nodes.launch(c.y))
      continue;
    if (signals.from(w.event, source, nodes.rank(c.y)) == std::vector<uint32_t>{nodes.task(c.x)})
      return true;
  }
  return false;
}

std::string text(const Program& p, const Nodes& nodes, uint32_t node) {
  return fmt::format("{} (rank {}, launch {})",
                     describe(p, ir::id_of<ir::TaskId>(nodes.task(node))), nodes.rank(node),
                     nodes.launch(node));
}

std::string orders(const Program& p, const Conflicts& conflicts, const Signals& signals,
                   const Graph& graph) {
  const Nodes& nodes = graph.nodes();
  std::vector<bool> chosen(static_cast<size_t>(conflicts.choices()), false);
  std::string wrong;
  const std::vector<Conflict>& all = conflicts.all();
  graph.ask(all, [&](uint32_t i, bool ended, bool seen) {
    const Conflict& c = all[i];
    const bool reads = !p.tasks[nodes.task(c.x)].accesses[c.access_x].writes();
    const bool ordered = reads ? ended : seen || polls_for(p, nodes, signals, c);
    if (c.choice >= 0) {
      if (ordered) chosen[static_cast<size_t>(c.choice)] = true;
    } else if (!ordered && wrong.empty()) {
      wrong = fmt::format("race: {} and {}", text(p, nodes, c.x), text(p, nodes, c.y));
    }
  });
  if (!wrong.empty()) return wrong;
  if (std::find(chosen.begin(), chosen.end(), false) != chosen.end())
    return "race: of one task on two ranks";

  struct Pair {
    uint32_t x, y;
  };
  std::vector<Pair> after, barrier;
  for (int rank = 0; rank < nodes.world; ++rank)
    for (uint32_t y = 0; y < nodes.tasks; ++y) {
      const Task& t = p.tasks[y];
      if (t.after.empty() || !runs(t, rank)) continue;
      for (uint32_t x = 0; x < nodes.tasks; ++x)
        if (std::count(t.after.begin(), t.after.end(), p.tasks[x].call) > 0 &&
            runs(p.tasks[x], rank))
          after.push_back({nodes.at(0, rank, x), nodes.at(0, rank, y)});
    }
  for (const ir::Collective& c : p.collectives) {
    if (c.kind != ir::CollectiveKind::Barrier) continue;
    std::vector<uint32_t> tasks;
    for (uint32_t t = 0; t < nodes.tasks; ++t)
      if (p[p.tasks[t].call].op == c.op) tasks.push_back(t);
    if (tasks.empty()) return "barrier: nothing does it";
    for (int from = 0; from < nodes.world; ++from)
      for (int to = 0; to < nodes.world; ++to)
        if (from != to)
          barrier.push_back({nodes.at(0, from, tasks.front()), nodes.at(0, to, tasks.back())});
  }
  graph.ask(after, [&](uint32_t i, bool ended, bool) {
    if (!ended)
      wrong = fmt::format("after: {} before {}", text(p, nodes, after[i].y),
                          text(p, nodes, after[i].x));
  });
  graph.ask(barrier, [&](uint32_t, bool ended, bool) {
    if (!ended) wrong = "barrier: it lets a rank go on too early";
  });
  return wrong;
}

// --- buffers that share bytes mean what they would with bytes of their own ---

std::string meaning(const Program& p, BufferKind kind, int memory) {
  std::map<int64_t, std::pair<int64_t, ir::BufferId>> written;  // runs of bytes: end, whose
  for (uint32_t t = 0; t < p.tasks.size(); ++t)
    for (const bool write : {false, true})
      for (int rank = 0; rank < p.world; ++rank) {
        if (!runs(p.tasks[t], rank)) continue;
        for (const Access& a : p.tasks[t].accesses) {
          if (a.writes() != write || p[a.region.buffer].kind != kind ||
              !has(reaches(p, a, rank), memory))
            continue;
          const Bytes box = bytes_of(p, a, rank);
          for (int64_t row = 0; row < box.rows; ++row) {
            const int64_t begin = box.start + row * box.pitch, end = begin + box.width;
            auto at = written.upper_bound(begin);
            if (at != written.begin() && std::prev(at)->second.first > begin) --at;
            if (!write) {
              for (; at != written.end() && at->first < end; ++at)
                if (at->second.second != a.region.buffer)
                  return fmt::format("meaning: {} reads '{}' where '{}' was written since",
                                     describe(p, ir::id_of<ir::TaskId>(t)), p[a.region.buffer].name,
                                     p[at->second.second].name);
              continue;
            }
            while (at != written.end() && at->first < end) {
              const auto [old_begin, old] = *at;
              at = written.erase(at);
              if (old_begin < begin) written[old_begin] = {begin, old.second};
              if (old.first > end)
                at = written.emplace(end, std::pair(old.first, old.second)).first;
            }
            written[begin] = {end, a.region.buffer};
          }
        }
      }
  return "";
}
std::string meaning(const Program& p) {
  for (const BufferKind kind : {BufferKind::Temp, BufferKind::Slot})
    for (int memory = 0; memory < p.world; ++memory)
      if (const std::string wrong = meaning(p, kind, memory); !wrong.empty()) return wrong;
  return "";
}

// --- collectives, element by element ---

/// What an element holds: element `index` of the operand; `ranks`: how often each rank's is
/// included (8 bits for each rank); or kZero.
constexpr int64_t kZero = -3;
struct Element {
  int64_t index = -1;
  uint64_t ranks = 0;
  bool reduced = false, averaged = false;
};

/// All transfers of a launch, with these actual values of the dims.
class Simulation {
 public:
  Simulation(const Program& p, const ir::Collective& collective,
             const std::map<std::string, int64_t>& dims)
      : p_(p), c_(collective), world_(static_cast<int>(p.world)) {
    const ir::Lookup lookup = [&](std::string_view name) -> std::optional<int64_t> {
      const auto at = dims.find(std::string(name));
      return at == dims.end() ? std::nullopt : std::optional(at->second);
    };
    for (const ir::Value& v : p.values)
      values_.push_back(ir::evaluate(v.expr, lookup).value.value_or(v.range.hi));
    for (const ir::Buffer& b : p.buffers)
      elements_.push_back(ir::evaluate(b.rows, lookup).value.value_or(b.max_rows) * b.cols);
  }

  std::string run(const std::vector<std::pair<int, uint32_t>>& order) {
    for (const auto& [rank, t] : order) {
      if (!runs(p_.tasks[t], rank)) continue;
      for (const ir::Transfer& x : p_[p_.tasks[t].call].transfers) {
        transfer(rank, p_.tasks[t], x);
        if (!wrong_.empty())
          return fmt::format("delivery: {} on rank {}: {}", describe(p_, ir::id_of<ir::TaskId>(t)),
                             rank, wrong_);
      }
    }
    return promised();
  }

 private:
  std::vector<Element>& memory(ir::BufferId b, int rank) {
    std::vector<Element>& m = memory_[{index(b), rank}];
    if (m.empty()) m.resize(static_cast<size_t>(p_[b].max_elements()));
    return m;
  }
  /// The operand, which nobody changes while it is read.
  std::vector<Element>& operand(int rank) {
    std::vector<Element>& m = operands_[rank];
    if (m.empty()) {
      m.resize(static_cast<size_t>(p_[c_.in].max_elements()));
      for (size_t i = 0; i < m.size(); ++i)
        m[i] = {static_cast<int64_t>(i), uint64_t{1} << 8 * rank, false};
    }
    return m;
  }
  /// Whether a task that reads `b` reads the operand. A message's operand is what its sender reads.
  bool reads_operand(const Task& t, ir::BufferId b) const {
    const std::string& op = p_[t.call].op;
    return b == c_.in && c_.kind != ir::CollectiveKind::Zeros &&
           (c_.kind != ir::CollectiveKind::Message || op == c_.sender || op == c_.op);
  }
  bool is_slot(const ir::Region& r) const { return p_[r.buffer].kind == BufferKind::Slot; }

  /// The existing elements of a region in one block, in order.
  std::vector<int64_t> elements(const ir::Region& r, int64_t block) const {
    const int64_t height = r.block.value ? values_[*r.block.value] : r.block.rows;
    const int64_t last = r.block.value ? std::min(r.r1, height) : r.r1;
    std::vector<int64_t> list;
    for (int64_t row = r.r0; row < last; ++row)
      for (int64_t column = r.c0; column < r.c1; ++column) {
        const int64_t at = (block * height + row) * r.pitch + column;
        if (at < elements_[index(r.buffer)]) list.push_back(at);
      }
    return list;
  }
  std::vector<int> blocks(const ir::Region& r, int rank) const {
    return r.block.any() ? ir::resolve(r.block.ref, rank, world_) : std::vector<int>{0};
  }

  void transfer(int rank, const Task& t, const ir::Transfer& x) {
    // Tensors say how much there is; slots have room for more.
    std::optional<size_t> count;
    std::vector<std::vector<Element*>> from, to;
    const auto collect = [&](uint32_t a, bool reads, std::vector<std::vector<Element*>>& lists) {
      const ir::Region& r = t.accesses[a].region;
      const std::vector<int> owners =
          is_slot(r) ? ir::resolve(r.where, rank, world_) : std::vector<int>{rank};
      for (int block : blocks(r, rank)) {
        const std::vector<int64_t> at = elements(r, block);
        if (!is_slot(r)) {
          if (count && *count != at.size()) wrong_ = "moves more to one place than to another";
          count = at.size();
        }
        for (int owner : owners) {
          std::vector<Element*>& list = lists.emplace_back();
          std::vector<Element>& there =
              reads && reads_operand(t, r.buffer) ? operand(owner) : memory(r.buffer, owner);
          for (int64_t e : at) list.push_back(&there[static_cast<size_t>(e)]);
        }
      }
    };
    for (uint32_t a : x.from) collect(a, true, from);
    for (uint32_t a : x.to) collect(a, false, to);
    if (x.kind == ir::Transfer::Kind::Clear) {
      for (const std::vector<Element*>& list : to)
        for (Element* e : list) *e = {kZero, 0, false};
      return;
    }
    size_t n = count.value_or(SIZE_MAX);
    for (const auto* lists : {&from, &to})
      for (const std::vector<Element*>& list : *lists) {
        if (count && list.size() < *count) wrong_ = "moves more than there is room for";
        n = std::min(n, list.size());
      }
    if (x.kind == ir::Transfer::Kind::Copy && from.size() != 1) wrong_ = "copies from many places";
    for (size_t k = 0; k < n && wrong_.empty(); ++k) {
      const Element e = x.kind == ir::Transfer::Kind::Copy ? *from[0][k] : sum(x, from, k);
      for (const std::vector<Element*>& list : to) *list[k] = e;
    }
  }
  Element sum(const ir::Transfer& x, const std::vector<std::vector<Element*>>& from, size_t k) {
    Element sum = *from[0][k];
    bool averaged = sum.averaged, ours = sum.index >= 0;
    for (size_t i = 1; i < from.size(); ++i) {
      const Element& e = *from[i][k];
      ours = ours || e.index >= 0;
      averaged = averaged || e.averaged;
      if (e.index != sum.index) sum.index = -2;
      sum.ranks += e.ranks;
    }
    sum.reduced = true;
    sum.averaged = x.reduce == ir::Reduction::Avg;
    if (!ours) return {};
    // Only wrong if this collective's result depends on it: operands may be shared with others.
    // Sums on the way to an average are sums.
    const bool on_the_way = c_.reduce == ir::Reduction::Avg && x.reduce == ir::Reduction::Sum;
    if (sum.index == -2 || (x.reduce != c_.reduce && !on_the_way) ||
        (sum.averaged && (averaged || sum.ranks != all_ranks())))
      return {};
    return sum;
  }
  uint64_t all_ranks() const {
    uint64_t all = 0;
    for (int r = 0; r < world_; ++r) all |= uint64_t{1} << 8 * r;
    return all;
  }

  std::string promised() {
    using enum ir::CollectiveKind;
    const bool out_blocks = c_.kind == AllGather || c_.kind == AllToAll,
               in_blocks = c_.kind == ReduceScatter || c_.kind == AllToAll;
    const int64_t block = elements_[index(c_.in)] / (in_blocks ? world_ : 1);
    if (elements_[index(c_.out)] != block * (out_blocks ? world_ : 1))
      return "delivery: the result has not as many elements";
    for (int rank = 0; rank < world_; ++rank) {
      if (c_.of_some() && !(c_.ranks >> rank & 1)) continue;
      const std::vector<Element>& y = memory(c_.out, rank);
      for (int64_t i = 0; i < block * (out_blocks ? world_ : 1); ++i) {
        const Element& got = y[static_cast<size_t>(i)];
        const int64_t index = (in_blocks ? rank * block : 0) + i % block;
        const int64_t from = out_blocks             ? i / block
                             : c_.kind == Broadcast ? c_.peer
                                                    : ((rank - c_.peer) % world_ + world_) % world_;
        if (c_.kind == Zeros) {
          if (got.index != kZero)
            return fmt::format("delivery: element {} of '{}' on rank {} isn't cleared", i,
                               p_[c_.out].name, rank);
          continue;
        }
        const bool sum = c_.kind == AllReduce || c_.kind == ReduceScatter;
        const uint64_t ranks = sum ? all_ranks() : uint64_t{1} << 8 * from;
        if (got.index != index || got.ranks != ranks ||
            (world_ > 1 &&
             (got.reduced != sum || got.averaged != (sum && c_.reduce == ir::Reduction::Avg))))
          return fmt::format("delivery: element {} of '{}' on rank {} is wrong", i, p_[c_.out].name,
                             rank);
      }
    }
    return "";
  }

  const Program& p_;
  const ir::Collective& c_;
  const int world_;
  std::vector<int64_t> values_, elements_;  // actual
  std::map<std::pair<size_t, int>, std::vector<Element>> memory_;
  std::map<int, std::vector<Element>> operands_;  // by rank
  std::string wrong_;
};

std::string delivery(const Program& p, const std::vector<std::pair<int, uint32_t>>& order) {
  // Each rank's result must be stated exactly once.
  std::map<std::string, std::vector<int>> promised;  // by op and rank
  for (const ir::Collective& c : p.collectives) {
    std::vector<int>& ranks = promised[c.op];
    ranks.resize(static_cast<size_t>(p.world));
    for (size_t r = 0; r < ranks.size(); ++r) ranks[r] += !c.of_some() || (c.ranks >> r & 1);
  }
  for (const auto& [op, ranks] : promised)
    if (std::count(ranks.begin(), ranks.end(), 1) != static_cast<int64_t>(ranks.size()))
      return fmt::format("delivery: what '{}' delivers isn't said once for each rank", op);
  for (const ir::Collective& c : p.collectives) {
    if (c.kind == ir::CollectiveKind::Barrier) continue;
    if (std::none_of(p.calls.begin(), p.calls.end(),
                     [&](const ir::Call& call) { return call.op == c.op; }))
      return "delivery: nothing does it";
    // The minimum, the maximum and the middle of the dims; these are different values wherever rows
    // depend on them.
    for (int step = 0; step < 3; ++step) {
      std::map<std::string, int64_t> dims;
      for (const ir::Value& v : p.values)
        if (const auto vars = v.expr.vars();
            vars.size() == 1 && v.expr == ir::Expr::var(*vars.begin()))
          dims[*vars.begin()] = v.range.lo + (v.range.hi - v.range.lo) * step / 2;
      if (const std::string wrong = Simulation(p, c, dims).run(order); !wrong.empty()) return wrong;
      if (dims.empty()) break;
    }
  }
  return "";
}

}  // namespace

bool surely_polls(const Program& p, const Task& t) {
  return std::none_of(t.accesses.begin(), t.accesses.end(), [&](const Access& a) {
    const ir::Region& r = a.region;
    if (r.block.value) return r.r0 >= p.values[*r.block.value].range.lo;
    const ir::Buffer& b = p[r.buffer];
    if (b.rows.is_constant() || r.r0 == r.r1 || r.c0 == r.c1) return false;
    int64_t least = 0;
    for (const ir::Value& v : p.values)
      if (v.expr == b.rows) least = v.range.lo;
    return r.r0 * r.pitch + r.c0 >= least * b.cols;
  });
}

bool meet(const Bytes& a, const Bytes& b) {
  if (a.rows == 0 || b.rows == 0 || a.start >= b.end() || b.start >= a.end()) return false;
  if (a.rows == 1 && b.rows == 1) return true;
  // Two boxes of one matrix.
  if (a.pitch == b.pitch && a.start % a.pitch + a.width <= a.pitch &&
      b.start % a.pitch + b.width <= a.pitch) {
    const int64_t ra = a.start / a.pitch, rb = b.start / a.pitch, ca = a.start % a.pitch,
                  cb = b.start % a.pitch;
    return ra < rb + b.rows && rb < ra + a.rows && ca < cb + b.width && cb < ca + a.width;
  }
  const Bytes &few = a.rows <= b.rows ? a : b, &many = a.rows <= b.rows ? b : a;
  for (int64_t row = 0; row < few.rows; ++row) {
    // The first row of `many` that ends behind the begin of this one.
    const int64_t begin = few.start + row * few.pitch, end = begin + few.width;
    const int64_t past = begin - many.start - many.width;
    const int64_t first = many.rows == 1 || past < 0 ? (past < 0 ? 0 : 1) : past / many.pitch + 1;
    if (first < many.rows && many.start + first * many.pitch < end) return true;
  }
  return false;
}

Nodes::Nodes(const Program& p)
    : tasks(static_cast<uint32_t>(p.tasks.size())),
      world(static_cast<int>(p.world)),
      launches(max_rotation(p) + 2) {
  if (max_rotation(p) == 0) launches = 1;
}

Conflicts::Conflicts(const Program& p) {
  const Nodes nodes(p);
  struct Touch {
    uint32_t task;
    uint16_t access;
    int runner;
    bool writes;
    Bytes bytes;
  };
  for (int memory = 0; memory < nodes.world; ++memory) {
    std::map<std::string, std::vector<Touch>> spaces;
    std::map<std::string, int64_t> rotations;  // of slots
    for (uint32_t t = 0; t < nodes.tasks; ++t)
      for (uint16_t i = 0; i < p.tasks[t].accesses.size(); ++i) {
        const Access& a = p.tasks[t].accesses[i];
        const ir::Buffer& b = p[a.region.buffer];
        for (int runner = 0; runner < nodes.world; ++runner) {
          if (!runs(p.tasks[t], runner) || !has(reaches(p, a, runner), memory)) continue;
          const std::string space = space_of(b);
          if (b.kind == BufferKind::Slot) rotations[space] = b.rotation;
          spaces[space].push_back({t, i, runner, a.writes(), bytes_of(p, a, runner)});
        }
      }
    for (auto& [space, list] : spaces) {
      if (std::none_of(list.begin(), list.end(), [](const Touch& x) { return x.writes; })) continue;
      std::erase_if(list, [](const Touch& x) { return x.bytes.rows == 0; });
      std::stable_sort(list.begin(), list.end(), [](const Touch& a, const Touch& b) {
        return a.bytes.start < b.bytes.start;
      });
      const auto slot = rotations.find(space);
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = i; j < list.size() && list[j].bytes.start < list[i].bytes.end(); ++j) {
          const Touch &a = list[i], &b = list[j];
          if ((!a.writes && !b.writes) || !meet(a.bytes, b.bytes) ||
              !test::meet_at_some_height(p, p.tasks[a.task].accesses[a.access].region, a.runner,
                                         p.tasks[b.task].accesses[b.access].region, b.runner))
            continue;
          const auto add = [&](int launch_a, int launch_b) {
            const uint32_t na = nodes.at(launch_a, a.runner, a.task),
                           nb = nodes.at(launch_b, b.runner, b.task);
            const auto m = static_cast<int16_t>(memory);
            const auto place = [](int launch, const Touch& x) { return std::pair(launch, x.task); };
            // What ranks move through one slot is followed by delivery(), in either order.
            const auto moves = [&](const Touch& x) {
              return !p[p.tasks[x.task].call].transfers.empty();
            };
            const bool moved = slot != rotations.end() && a.runner != b.runner &&
                               launch_a == launch_b && moves(a) && moves(b) &&
                               p.tasks[a.task].accesses[a.access].region.buffer ==
                                   p.tasks[b.task].accesses[b.access].region.buffer;
            const bool either = moved || place(launch_a, a) == place(launch_b, b);
            const int32_t choice = either ? choices_++ : -1;
            if (either || place(launch_a, a) < place(launch_b, b))
              all_.push_back({na, nb, a.access, b.access, m, choice});
            if (either || place(launch_a, a) > place(launch_b, b))
              all_.push_back({nb, na, b.access, a.access, m, choice});
          };
          // A rank's launches use its private memory one after another.
          if (slot == rotations.end() || nodes.launches == 1) {
            if (a.task != b.task) add(0, 0);
            continue;
          }
          for (int x = 0; x < nodes.launches; ++x)
            for (int y = 0; y < nodes.launches; ++y) {
              if ((x - y) % slot->second != 0) continue;
              if (a.runner == b.runner && (x != y || a.task == b.task)) continue;
              if (i == j && x >= y) continue;
              add(x, y);
            }
        }
    }
  }
}

std::string second_opinion(const Program& p, const Conflicts* conflicts) {
  if (const std::string wrong = structure(p); !wrong.empty()) return wrong;
  if (const std::string wrong = loads(p); !wrong.empty()) return wrong;
  const Signals signals(p);
  if (const std::string wrong = signals.counts(); !wrong.empty()) return wrong;
  Graph graph(p, signals);
  if (!graph.sort()) return "deadlock: a cycle";
  std::optional<Conflicts> own;
  if (!conflicts) conflicts = &own.emplace(p);
  if (const std::string wrong = orders(p, *conflicts, signals, graph); !wrong.empty()) return wrong;
  if (const std::string wrong = meaning(p); !wrong.empty()) return wrong;
  const Nodes& nodes = graph.nodes();
  std::vector<std::pair<int, uint32_t>> order;
  for (uint32_t n : graph.order())
    if (n < nodes.size() && nodes.launch(n) == 0) order.emplace_back(nodes.rank(n), nodes.task(n));
  return delivery(p, order);
}

}  // namespace maco::proofs
