// second_opinion.cpp: conflicts, signals, happens-before, and the verdict.

#include <functional>
#include <map>
#include <optional>
#include <queue>

#include "tests/proofs/second_opinion_parts.h"
#include "tests/unit/block_heights.h"

namespace maco::proofs {

namespace {

using ir::Access;
using ir::BufferKind;
using ir::EventKind;
using ir::Program;
using ir::RankRef;
using ir::Task;

// What a wait waits for is what will arrive.
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
           has(ranks_of(s.to, source, static_cast<int>(p_.world)), rank);
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
          for (int source : ranks_of(from_ranks, rank, world)) {
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
          for (int rank : ranks_of(to, source, world)) {
            const bool heard = std::any_of(waits_[i].begin(), waits_[i].end(), [&](const auto& w) {
              return runs(p_.tasks[w.first], rank) && has(ranks_of(w.second, rank, world), source);
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
                         has(ranks_of(s.to, source, world), rank);
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

// Happens-before.
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

  /// Sorts the nodes topologically; false if there is a cycle.
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
    for (int source : local ? std::vector<int>{rank} : ranks_of(w.from, rank, nodes_.world))
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
        !has(ranks_of(w.from, nodes.rank(c.y), nodes.world), source) ||
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
    // The first row of `many` that ends behind the start of this one.
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
