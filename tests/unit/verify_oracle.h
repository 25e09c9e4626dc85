// A second verifier, as simple as can be: every task of every rank and launch is a node,
// happens-before is a table of bits closed under composition, accesses are sets of bytes. It shares
// no code with compiler/verify and takes two launches more than that needs.
#pragma once

#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/program.h"
#include "tests/unit/block_heights.h"

namespace maco::test {

class Oracle {
 public:
  explicit Oracle(const ir::Program& program)
      : p_(program), world_(static_cast<int>(program.world)) {
    for (const ir::Buffer& b : p_.buffers)
      launches_ = std::max(launches_, static_cast<int>(b.rotation) + 3);
  }

  /// "" if the synced Program is right, else "count", "deadlock" or "race". Presupposes that ids
  /// and bounds are valid.
  std::string verdict() {
    if (!counts()) return "count";
    edges();
    close(strong_);
    close(weak_);
    for (size_t n = 0; n < nodes(); ++n)
      if (weak_[n][n]) return "deadlock";
    return races() || !afters() ? "race" : "";
  }

  /// Whether the two touch a byte in common and one of them writes; `rank` runs it in `launch`.
  struct Instance {
    size_t task;
    int rank, launch;
  };
  bool conflict(const Instance& x, const Instance& y) const {
    for (const ir::Access& a : p_.tasks[x.task].accesses)
      for (const ir::Access& b : p_.tasks[y.task].accesses) {
        if (!a.writes() && !b.writes()) continue;
        for (int memory = 0; memory < world_; ++memory)
          if (reaches(a, x.rank, memory) && reaches(b, y.rank, memory) &&
              meet(bytes(a, x.rank, x.launch), bytes(b, y.rank, y.launch)) &&
              meet_at_some_height(p_, a.region, x.rank, b.region, y.rank))
            return true;
      }
    return false;
  }

  static constexpr size_t kMaxNodes = 512;
  size_t nodes() const { return p_.tasks.size() * static_cast<size_t>(world_ * launches_); }

 private:
  using Relation = std::vector<std::bitset<kMaxNodes>>;

  size_t node(size_t task, int rank, int launch) const {
    return (static_cast<size_t>(launch) * static_cast<size_t>(world_) + static_cast<size_t>(rank)) *
               p_.tasks.size() +
           task;
  }
  size_t task_of(size_t n) const { return n % p_.tasks.size(); }
  int rank_of(size_t n) const { return static_cast<int>(n / p_.tasks.size()) % world_; }
  int launch_of(size_t n) const { return static_cast<int>(n / p_.tasks.size()) / world_; }
  bool runs(size_t task, int rank) const { return (p_.tasks[task].ranks >> rank) & 1; }
  bool local(ir::EventId e) const { return p_[e].kind == ir::EventKind::Local; }

  std::vector<size_t> senders(ir::EventId e, int source, int rank) const {
    std::vector<size_t> result;
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Signal& s : p_.tasks[t].signals) {
        const auto to = ir::resolve(s.to, source, world_);
        if (s.event == e && runs(t, source) && std::count(to.begin(), to.end(), rank))
          result.push_back(t);
      }
    return result;
  }

  bool counts() const {
    for (size_t e = 0; e < p_.events.size(); ++e) {
      size_t signals = 0, waits = 0;
      for (const ir::Task& t : p_.tasks)
        for (const ir::Signal& s : t.signals) signals += ir::index(s.event) == e;
      for (const ir::Task& t : p_.tasks)
        for (const ir::Wait& w : t.waits) waits += ir::index(w.event) == e;
      const bool wrong = signals != p_.events[e].count || (signals == 0 && waits > 0);
      if (p_.events[e].kind == ir::EventKind::Local && wrong) return false;
    }
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Wait& w : p_.tasks[t].waits)
        for (int rank = 0; rank < world_; ++rank) {
          if (!runs(t, rank) || local(w.event)) continue;
          for (int source : ir::resolve(w.from, rank, world_)) {
            const auto from = senders(w.event, source, rank);
            if (from.size() != 1) return false;
            if (p_[w.event].kind == ir::EventKind::Packet &&
                !packets_meet(from[0], source, t, rank))
              return false;
          }
        }
    // Packets get their flags from a packet event that is signalled to where they go.
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Access& a : p_.tasks[t].accesses)
        for (int rank = 0; rank < world_ && a.writes() && p_[a.region.buffer].packets; ++rank)
          for (int to : ir::resolve(a.region.where, rank, world_)) {
            bool told = !runs(t, rank);
            for (const ir::Signal& s : p_.tasks[t].signals) {
              const auto all = ir::resolve(s.to, rank, world_);
              told = told || (p_[s.event].kind == ir::EventKind::Packet &&
                              std::count(all.begin(), all.end(), to));
            }
            if (!told) return false;
          }
    // Packets of a slot are written once a launch.
    for (size_t x = 0; x < p_.tasks.size(); ++x)
      for (size_t y = x; y < p_.tasks.size(); ++y)
        if (!packets_apart(x, y)) return false;
    // Nobody tells another rank what it doesn't listen to.
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Signal& s : p_.tasks[t].signals)
        for (int rank = 0; rank < world_; ++rank) {
          if (!runs(t, rank) || local(s.event)) continue;
          for (int to : ir::resolve(s.to, rank, world_))
            if (!listens(s.event, rank, to)) return false;
        }
    return true;
  }
  bool packets_apart(size_t x, size_t y) const {
    for (const ir::Access& a : p_.tasks[x].accesses)
      for (const ir::Access& b : p_.tasks[y].accesses) {
        if (!a.writes() || !b.writes() || a.region.buffer != b.region.buffer ||
            !p_[a.region.buffer].packets)
          continue;
        for (int i = 0; i < world_; ++i)
          for (int k = 0; k < world_; ++k) {
            if (!runs(x, i) || !runs(y, k) || (&a == &b && i == k)) continue;
            for (int memory = 0; memory < world_; ++memory)
              if (reaches(a, i, memory) && reaches(b, k, memory) &&
                  meet(bytes(a, i, 0), bytes(b, k, 0)))
                return false;
          }
      }
    return true;
  }
  bool listens(ir::EventId e, int source, int rank) const {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Wait& w : p_.tasks[t].waits) {
        const auto from = ir::resolve(w.from, rank, world_);
        if (w.event == e && runs(t, rank) && std::count(from.begin(), from.end(), source))
          return true;
      }
    return false;
  }
  /// Whether what comes after something else without sharing data surely does.
  bool afters() const {
    for (size_t x = 0; x < nodes(); ++x)
      for (size_t y = 0; y < nodes(); ++y) {
        const ir::Task& task = p_.tasks[task_of(y)];
        if (rank_of(x) != rank_of(y) || launch_of(x) != launch_of(y) ||
            !runs(task_of(x), rank_of(x)) || !runs(task_of(y), rank_of(y)))
          continue;
        if (std::count(task.after.begin(), task.after.end(), p_.tasks[task_of(x)].call) &&
            !weak_[x][y])
          return false;
      }
    return true;
  }
  bool packets_meet(size_t writer, int source, size_t reader, int rank) const {
    for (const ir::Access& w : p_.tasks[writer].accesses)
      for (const ir::Access& r : p_.tasks[reader].accesses)
        if (w.writes() && !r.writes() && w.region.buffer == r.region.buffer &&
            p_[w.region.buffer].packets && reaches(w, source, rank) &&
            meet(bytes(w, source, 0), bytes(r, rank, 0)))
          return true;
    return false;
  }

  void edges() {
    strong_.assign(nodes(), {});
    weak_.assign(nodes(), {});
    const auto edge = [&](size_t from, size_t to, bool is_strong) {
      weak_[from].set(to);
      if (is_strong) strong_[from].set(to);
    };
    for (size_t a = 0; a < nodes(); ++a)
      for (size_t b = 0; b < nodes(); ++b) {
        const ir::Task &ta = p_.tasks[task_of(a)], &tb = p_.tasks[task_of(b)];
        if (rank_of(a) == rank_of(b) && launch_of(a) < launch_of(b)) edge(a, b, true);
        if (rank_of(a) == rank_of(b) && launch_of(a) == launch_of(b) && ta.sm == tb.sm &&
            ta.place < tb.place)
          edge(a, b, true);
        if (!runs(task_of(b), rank_of(b))) continue;
        for (const ir::Wait& w : tb.waits) {
          if (launch_of(a) != launch_of(b) - static_cast<int>(w.lag)) continue;
          for (const ir::Signal& s : ta.signals) {
            if (s.event != w.event) continue;
            if (local(w.event)) {
              if (rank_of(a) == rank_of(b)) edge(a, b, true);
              continue;
            }
            const auto to = ir::resolve(s.to, rank_of(a), world_),
                       from = ir::resolve(w.from, rank_of(b), world_);
            if (runs(task_of(a), rank_of(a)) && std::count(to.begin(), to.end(), rank_of(b)) &&
                std::count(from.begin(), from.end(), rank_of(a)))
              edge(a, b, p_[w.event].kind == ir::EventKind::Peer);
          }
        }
      }
  }
  void close(Relation& relation) const {
    for (size_t k = 0; k < nodes(); ++k)
      for (size_t i = 0; i < nodes(); ++i)
        if (relation[i][k]) relation[i] |= relation[k];
  }

  using Bytes = std::set<std::pair<std::string, int64_t>>;
  static bool meet(const Bytes& a, const Bytes& b) {
    return std::any_of(a.begin(), a.end(), [&](const auto& byte) { return b.count(byte) > 0; });
  }
  Bytes bytes(const ir::Access& access, int rank, int launch) const {
    const ir::Region& g = access.region;
    const ir::Buffer& b = p_[g.buffer];
    const int64_t size = ir::size_of(b.dtype);
    Bytes result;
    const bool slot = b.kind == ir::BufferKind::Slot, temp = b.kind == ir::BufferKind::Temp;
    const std::string space = slot ? "<symmetric>" : temp ? "<arena>" : b.name;
    const int64_t base =
        slot || temp ? *b.offset + (launch % b.rotation) * ((b.bytes() + 255) / 256 * 256) : 0;
    const ir::Interval shift = shift_of(p_, g, rank);
    for (int64_t r = g.r0 + shift.lo; r < g.r1 + shift.hi; ++r)
      for (int64_t c = g.c0; c < g.c1; ++c) {
        const int64_t element = r * g.pitch + c;
        for (int64_t byte = 0; byte < size; ++byte) {
          if (!b.packets) {
            result.insert({space, base + element * size + byte});
            continue;
          }
          const int64_t row_packets = (b.cols * size + 3) / 4;
          const int64_t packet =
              element / b.cols * row_packets + (element % b.cols * size + byte) / 4;
          for (int64_t k = 0; k < 8; ++k) result.insert({space, base + packet * 8 + k});
        }
      }
    return result;
  }
  /// Whether the access of a task of `runner` is to the memory of `memory`.
  bool reaches(const ir::Access& a, int runner, int memory) const {
    const auto where = ir::resolve(a.region.where, runner, world_);
    return std::count(where.begin(), where.end(), memory) > 0;
  }

  bool ordered(size_t first, const ir::Access& a, size_t second, const ir::Access& b,
               int memory) const {
    if (!a.writes()) return weak_[first][second];
    if (strong_[first][second]) return true;
    const ir::BufferId from_slot = a.region.buffer, to_slot = b.region.buffer;
    if (!p_[from_slot].packets || b.writes()) return false;
    // Other flags in the same place: what is polled for is written after `first`.
    if (from_slot != to_slot) return p_[to_slot].packets && p_[to_slot].use != p_[from_slot].use;
    for (const ir::Wait& w : p_.tasks[task_of(second)].waits) {
      if (p_[w.event].kind != ir::EventKind::Packet ||
          launch_of(first) + static_cast<int>(w.lag) > launch_of(second))
        continue;
      const auto from = ir::resolve(w.from, memory, world_);
      const auto by = senders(w.event, rank_of(first), memory);
      if (std::count(from.begin(), from.end(), rank_of(first)) &&
          by == std::vector<size_t>{task_of(first)})
        return true;
    }
    return false;
  }

  bool races() const {
    // What the accesses touch, once.
    std::map<std::pair<size_t, size_t>, Bytes> touched;
    for (size_t n = 0; n < nodes(); ++n)
      for (size_t i = 0; i < p_.tasks[task_of(n)].accesses.size(); ++i)
        touched[{n, i}] = bytes(p_.tasks[task_of(n)].accesses[i], rank_of(n), launch_of(n));
    for (size_t x = 0; x < nodes(); ++x)
      for (size_t y = 0; y < nodes(); ++y) {
        // The list of tasks says which comes first; of one task on two ranks either might.
        if (x == y || std::pair(launch_of(x), task_of(x)) > std::pair(launch_of(y), task_of(y)))
          continue;
        if (!runs(task_of(x), rank_of(x)) || !runs(task_of(y), rank_of(y))) continue;
        const ir::Task &tx = p_.tasks[task_of(x)], &ty = p_.tasks[task_of(y)];
        for (size_t i = 0; i < tx.accesses.size(); ++i)
          for (size_t j = 0; j < ty.accesses.size(); ++j) {
            const ir::Access &a = tx.accesses[i], &b = ty.accesses[j];
            if (!a.writes() && !b.writes()) continue;
            for (int memory = 0; memory < world_; ++memory)
              if (reaches(a, rank_of(x), memory) && reaches(b, rank_of(y), memory) &&
                  !ordered(x, a, y, b, memory) && meet(touched.at({x, i}), touched.at({y, j})) &&
                  meet_at_some_height(p_, a.region, rank_of(x), b.region, rank_of(y)))
                return true;
          }
      }
    return false;
  }

  const ir::Program& p_;
  int world_;
  int launches_ = 3;
  Relation strong_, weak_;
};

}  // namespace maco::test
