#include "tests/proofs/memory_model.h"

#include "tests/proofs/second_opinion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tests/proofs/rank_list.h"

namespace maco::proofs {
namespace {

using ir::EventKind;
using ir::Program;
using ir::Scope;

bool has(const std::vector<int>& list, int n) {
  return std::find(list.begin(), list.end(), n) != list.end();
}

struct Thread {
  int gpu = 0;
  int32_t cta = 0;
};
/// 8.5: whether a scope of an operation of `a` includes `b`.
bool includes(Scope scope, Thread a, Thread b) { return scope == Scope::Sys || a.gpu == b.gpu; }

enum class Semantics : uint8_t { Weak, Relaxed, Acquire, Release };
struct Operation {
  Thread thread;
  Semantics semantics = Semantics::Weak;
  Scope scope = Scope::Sys;
  bool packet = false;
};
/// 8.7, for operations on one location that are strong.
bool morally_strong(const Operation& a, const Operation& b) {
  return includes(a.scope, a.thread, b.thread) && includes(b.scope, b.thread, a.thread);
}

class Execution {
 public:
  Execution(const Program& p, const Conflicts& conflicts)
      : p_(p), conflicts_(conflicts), nodes_(p) {
    operations();
    flags();
    close();
  }

  std::string race() const {
    std::vector<bool> chosen(static_cast<size_t>(conflicts_.choices()), false);
    for (const Conflict& c : conflicts_.all()) {
      const uint32_t x = data_.at({c.x, c.access_x}), y = data_.at({c.y, c.access_y});
      const bool reads = !access(c.x, c.access_x).writes();
      const bool ordered = causes(x, y) || causes(y, x) ||
                           (reads                              ? leads(x, y)
                            : access(c.y, c.access_y).writes() ? false
                                                               : leads(y, x)) ||
                           packets(c.x, c.access_x, c.y, c.access_y) ||
                           packets(c.y, c.access_y, c.x, c.access_x) ||
                           other_flags(access(c.x, c.access_x), access(c.y, c.access_y));
      if (c.choice >= 0) {
        if (ordered) chosen[static_cast<size_t>(c.choice)] = true;
      } else if (!ordered) {
        return fmt::format("{} and {}", text(c.x), text(c.y));
      }
    }
    if (std::find(chosen.begin(), chosen.end(), false) != chosen.end())
      return "one task on two ranks";
    return after();
  }

 private:
  bool runs(uint32_t task, int rank) const { return (p_.tasks[task].ranks >> rank) & 1; }
  const ir::Access& access(uint32_t node, uint16_t i) const {
    return p_.tasks[nodes_.task(node)].accesses[i];
  }
  std::string text(uint32_t n) const {
    return fmt::format("{} (rank {}, launch {})",
                       describe(p_, ir::id_of<ir::TaskId>(nodes_.task(n))), nodes_.rank(n),
                       nodes_.launch(n));
  }

  uint32_t add(Operation o) {
    operations_.push_back(o);
    before_.emplace_back();
    return static_cast<uint32_t>(operations_.size() - 1);
  }
  void operations() {
    const auto streams = ir::streams(p_);
    std::vector<uint32_t> ends(static_cast<size_t>(nodes_.world), ~0u);  // of the launch before
    for (int launch = 0; launch < nodes_.launches; ++launch)
      for (int rank = 0; rank < nodes_.world; ++rank) {
        uint32_t& kernel = ends[static_cast<size_t>(rank)];
        const uint32_t begin = add({});
        if (kernel != ~0u) before_[begin].push_back({kernel, true});
        std::vector<uint32_t> last;
        for (size_t cta = 0; cta < streams.size(); ++cta) {
          uint32_t now = begin;
          for (ir::TaskId t : streams[cta])
            now = task({rank, static_cast<int32_t>(cta)}, launch, static_cast<uint32_t>(index(t)),
                       now);
          last.push_back(now);
        }
        kernel = add({});
        for (uint32_t l : last) before_[kernel].push_back({l, true});
      }
  }
  uint32_t task(Thread thread, int launch, uint32_t t, uint32_t now) {
    const ir::Task& task = p_.tasks[t];
    const uint32_t node = nodes_.at(launch, thread.gpu, t);
    const auto next = [&](Operation o) {
      const uint32_t id = add(o);
      before_[id].push_back({now, true});
      now = id;
      return id;
    };
    const bool here = runs(t, thread.gpu);
    first_[node] = now;
    for (uint16_t w = 0; here && w < task.waits.size(); ++w) {
      const ir::Event& e = p_[task.waits[w].event];
      const bool packet = e.kind == EventKind::Packet;
      loads_.push_back(
          {next({thread,
                 task.waits[w].relaxed || packet || e.kind == EventKind::Hint ? Semantics::Relaxed
                                                                              : Semantics::Acquire,
                 e.reach(), packet}),
           node, w});
    }
    for (const bool writes : {false, true})
      for (uint16_t i = 0; here && i < task.accesses.size(); ++i)
        if (task.accesses[i].writes() == writes)
          data_[{node, i}] = next({thread, Semantics::Weak, Scope::Sys, false});
    for (uint16_t s = 0; s < task.signals.size(); ++s) {
      const ir::Event& e = p_[task.signals[s].event];
      if (!here && !is_counter(e.kind)) continue;
      const bool packet = e.kind == EventKind::Packet;
      stores_[index(task.signals[s].event)].push_back(
          {next({thread,
                 task.signals[s].relaxed || packet || e.kind == EventKind::Hint
                     ? Semantics::Relaxed
                     : Semantics::Release,
                 e.reach(), packet}),
           node, s});
    }
    last_[node] = now;
    return now;
  }

  // 8.8, 8.9.4: what a load observes, and whether the load and the store synchronise.
  void flags() {
    for (const Flag& load : loads_) {
      const ir::Wait& w = p_.tasks[nodes_.task(load.node)].waits[load.index];
      const int launch = nodes_.launch(load.node) - static_cast<int>(w.lag),
                rank = nodes_.rank(load.node);
      const bool local = is_counter(p_[w.event].kind);
      for (const Flag& store : stores_[index(w.event)]) {
        const int source = nodes_.rank(store.node);
        const ir::Signal& s = p_.tasks[nodes_.task(store.node)].signals[store.index];
        if (nodes_.launch(store.node) != launch ||
            (local ? source != rank
                   : !has(ranks_of(w.from, rank, nodes_.world), source) ||
                         !has(ranks_of(s.to, source, nodes_.world), rank)))
          continue;
        const Operation &a = operations_[store.operation], &b = operations_[load.operation];
        if (!morally_strong(a, b)) continue;
        if (a.semantics == Semantics::Release && b.semantics == Semantics::Acquire)
          before_[load.operation].push_back({store.operation, true});
        // A relaxed packet is one like any other; that its tile may have no rows, the others know.
        if (a.packet && surely(nodes_.task(load.node)))
          before_[load.operation].push_back({store.operation, false});
      }
    }
  }
  bool surely(uint32_t t) const { return surely_polls(p_, p_.tasks[t]); }

  // 8.9.5, and the order in which reads are over.
  void close() {
    const size_t words = operations_.size() / 64 + 1;
    causality_.assign(operations_.size(), std::vector<uint64_t>(words, 0));
    over_ = causality_;
    std::vector<bool> done(operations_.size(), false);
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < operations_.size(); ++i) {
      open.push_back(i);
      while (!open.empty()) {
        const uint32_t now = open.back();
        const auto missing = std::find_if(before_[now].begin(), before_[now].end(),
                                          [&](const auto& b) { return !done[b.first]; });
        if (!done[now] && missing != before_[now].end()) {
          open.push_back(missing->first);
          continue;
        }
        open.pop_back();
        if (done[now]) continue;
        done[now] = true;
        for (const auto& [from, causes] : before_[now]) {
          for (size_t k = 0; k < words; ++k) {
            if (causes) causality_[now][k] |= causality_[from][k];
            over_[now][k] |= over_[from][k];
          }
          if (causes) causality_[now][from / 64] |= uint64_t{1} << from % 64;
          over_[now][from / 64] |= uint64_t{1} << from % 64;
        }
      }
    }
  }
  bool causes(uint32_t x, uint32_t y) const { return causality_[y][x / 64] >> x % 64 & 1; }
  bool leads(uint32_t x, uint32_t y) const { return over_[y][x / 64] >> x % 64 & 1; }

  /// x writes the very packets that y polls, morally strong.
  bool packets(uint32_t x, uint16_t ax, uint32_t y, uint16_t ay) const {
    const ir::BufferId b = access(x, ax).region.buffer;
    if (!access(x, ax).writes() || access(y, ay).writes() || b != access(y, ay).region.buffer ||
        !p_[b].packets)
      return false;
    for (const ir::Wait& w : p_.tasks[nodes_.task(y)].waits)
      for (const ir::Signal& s : p_.tasks[nodes_.task(x)].signals)
        if (p_[b].own_packets()) {
          if (s.event == w.event && p_[w.event].kind == EventKind::Hint && w.lag == 0 &&
              nodes_.launch(x) == nodes_.launch(y) && nodes_.rank(x) == nodes_.rank(y))
            return true;
        } else if (s.event == w.event && p_[w.event].kind == EventKind::Packet &&
                   nodes_.launch(x) + static_cast<int>(w.lag) <= nodes_.launch(y) &&
                   has(ranks_of(w.from, nodes_.rank(y), nodes_.world), nodes_.rank(x)) &&
                   has(ranks_of(s.to, nodes_.rank(x), nodes_.world), nodes_.rank(y)) &&
                   includes(p_[w.event].reach(), {nodes_.rank(x), 0}, {nodes_.rank(y), 0}))
          return true;
    return false;
  }

  /// x writes packets of another use in the place of those that y polls, which are written later.
  /// Both are strong, and y polls until its own packets are there.
  bool other_flags(const ir::Access& x, const ir::Access& y) const {
    const ir::Buffer &a = p_[x.region.buffer], &b = p_[y.region.buffer];
    return x.writes() && !y.writes() && &a != &b && a.packets && b.packets && a.use != b.use;
  }

  std::string after() const {
    for (int rank = 0; rank < nodes_.world; ++rank)
      for (uint32_t y = 0; y < nodes_.tasks; ++y)
        for (uint32_t x = 0; x < nodes_.tasks; ++x) {
          const auto& list = p_.tasks[y].after;
          if (std::find(list.begin(), list.end(), p_.tasks[x].call) == list.end() ||
              !runs(x, rank) || !runs(y, rank))
            continue;
          if (!comes_after_data(nodes_.at(0, rank, x), nodes_.at(0, rank, y)))
            return fmt::format("{} may not come after {}", text(nodes_.at(0, rank, y)),
                               text(nodes_.at(0, rank, x)));
        }
    for (const ir::Collective& c : p_.collectives) {
      if (c.kind != ir::CollectiveKind::Barrier) continue;
      std::vector<uint32_t> tasks;
      for (uint32_t t = 0; t < nodes_.tasks; ++t)
        if (p_[p_.tasks[t].call].op == c.op) tasks.push_back(t);
      for (int from = 0; from < nodes_.world; ++from)
        for (int to = 0; to < nodes_.world; ++to)
          if (from != to && !leads(first_.at(nodes_.at(0, from, tasks.front())),
                                   last_.at(nodes_.at(0, to, tasks.back()))))
            return "a barrier";
    }
    return "";
  }
  // All that y does after all that x does; its flags come in between.
  bool comes_after_data(uint32_t x, uint32_t y) const {
    for (auto at = data_.lower_bound({x, 0}); at != data_.end() && at->first.first == x; ++at)
      for (auto to = data_.lower_bound({y, 0}); to != data_.end() && to->first.first == y; ++to)
        if (!leads(at->second, to->second)) return false;
    return true;
  }

  struct Flag {
    uint32_t operation, node;
    uint16_t index;
  };
  const Program& p_;
  const Conflicts& conflicts_;
  const Nodes nodes_;
  std::vector<Operation> operations_;
  std::vector<std::vector<std::pair<uint32_t, bool>>>
      before_;  // what comes before, and whether it is causality
  std::map<std::pair<uint32_t, uint16_t>, uint32_t> data_;  // by node and access
  std::map<uint32_t, uint32_t> first_, last_;  // by node: the operation before its first, its last
  std::vector<Flag> loads_;
  std::map<size_t, std::vector<Flag>> stores_;  // by event
  std::vector<std::vector<uint64_t>> causality_, over_;
};

}  // namespace

std::string memory_race(const Program& p, const Conflicts& conflicts) {
  return Execution(p, conflicts).race();
}

}  // namespace maco::proofs
