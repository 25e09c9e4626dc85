// prune_sync.cpp: removes waits that stream order or other waits already imply.
//
// A wait of task t for a local event is implied when every producer of the event happens before t without it. The pass walks the tasks in
// Program order, in which every dependency points forward, and keeps for each task a vector clock: of every stream, how many tasks are known
// to have ended. Clocks are of one rank, and one serves all ranks that run the same tasks. A rank that skips a task waits for nothing there,
// so that the task passes on only what stream order gives; and of a producer that it skips it needs nothing. Events that nobody waits for any
// more go, with their signals. The order of tasks stays.

#include <algorithm>
#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

using Clock = std::vector<int32_t>;  // per CTA: number of tasks of its stream that have ended

void join(Clock& a, const Clock& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], b[i]);
}

class Pruner {
 public:
  explicit Pruner(ir::Program& p)
      : p_(p), ctas_(static_cast<size_t>(p.ctas)), producers_(p.events.size()), event_clocks_(p.events.size()), waiters_(p.events.size(), 0) {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      for (const ir::Signal& s : p_.tasks[t].signals)
        if (local(s.event)) producers_[index(s.event)].push_back(t);
      for (const ir::Wait& w : p_.tasks[t].waits) waiters_[index(w.event)]++;
    }
    find_ranks();
    streams_.assign(ranks_.size(), std::vector<Clock>(ctas_, Clock(ctas_, 0)));
  }

  int64_t run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      ir::Task& task = p_.tasks[t];
      const auto sm = static_cast<size_t>(task.sm);
      Clocks now = before(task);
      // Latest producers first: they are the most likely to imply the others.
      std::vector<ir::Wait> waits;
      std::vector<ir::Wait> locals;
      for (const ir::Wait& w : task.waits) (local(w.event) && w.lag == 0 ? locals : waits).push_back(w);
      std::stable_sort(locals.begin(), locals.end(),
                       [&](const ir::Wait& a, const ir::Wait& b) { return last_producer(a.event) > last_producer(b.event); });
      std::vector<ir::Wait> needed;
      for (const ir::Wait& w : locals) {
        if (implied(task, w, now)) continue;
        needed.push_back(w);
        hear(task, w, now);
      }
      // A wait that came first because of its latest producer may be implied by those that came behind it.
      for (size_t i = 0; needed.size() > 1 && i < needed.size();) {
        Clocks others = before(task);
        for (size_t k = 0; k < needed.size(); ++k)
          if (k != i) hear(task, needed[k], others);
        if (implied(task, needed[i], others)) needed.erase(needed.begin() + static_cast<std::ptrdiff_t>(i));
        else ++i;
      }
      removed_ += static_cast<int64_t>(locals.size() - needed.size());
      waits.insert(waits.end(), needed.begin(), needed.end());
      for (const ir::Wait& w : locals) release(w.event);
      task.waits = std::move(waits);
      for (size_t r = 0; r < ranks_.size(); ++r) {
        Clock& stream = streams_[r][sm];
        if (runs(task, r)) stream = std::move(now[r]);
        stream[sm] = task.place + 1;
        for (const ir::Signal& s : task.signals)
          if (local(s.event) && waiters_[index(s.event)] > 0) {
            Clocks& clocks = event_clocks_[index(s.event)];
            clocks.resize(ranks_.size(), Clock(ctas_, 0));
            join(clocks[r], stream);
          }
      }
    }
    drop_unused();
    return removed_;
  }

 private:
  using Clocks = std::vector<Clock>;  // per entry of ranks_

  // One rank of each set of ranks that run the same tasks.
  void find_ranks() {
    std::vector<std::vector<bool>> seen;
    for (int rank = 0; rank < p_.world; ++rank) {
      std::vector<bool> own;
      for (const ir::Task& t : p_.tasks) own.push_back((t.ranks >> rank) & 1);
      if (std::find(seen.begin(), seen.end(), own) != seen.end()) continue;
      seen.push_back(std::move(own));
      ranks_.push_back(rank);
    }
  }
  bool runs(const ir::Task& t, size_t r) const { return (t.ranks >> ranks_[r]) & 1; }

  // What stream order alone tells a task, on the ranks that run it.
  Clocks before(const ir::Task& task) const {
    Clocks now;
    for (size_t r = 0; r < ranks_.size(); ++r) now.push_back(runs(task, r) ? streams_[r][static_cast<size_t>(task.sm)] : Clock());
    return now;
  }
  void hear(const ir::Task& task, const ir::Wait& w, Clocks& now) const {
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (runs(task, r)) join(now[r], event_clocks_[index(w.event)][r]);
  }
  bool implied(const ir::Task& task, const ir::Wait& w, const Clocks& now) const {
    for (size_t q : producers_[index(w.event)]) {
      const ir::Task& producer = p_.tasks[q];
      for (size_t r = 0; r < ranks_.size(); ++r)
        if (runs(task, r) && runs(producer, r) && now[r][static_cast<size_t>(producer.sm)] <= producer.place) return false;
    }
    return true;
  }
  bool local(ir::EventId e) const { return p_[e].kind == ir::EventKind::Local; }
  size_t last_producer(ir::EventId e) const { return producers_[index(e)].empty() ? 0 : producers_[index(e)].back(); }
  void release(ir::EventId e) {
    if (--waiters_[index(e)] == 0) event_clocks_[index(e)] = {};
  }

  void drop_unused() {
    std::vector<bool> used(p_.events.size(), false);
    for (const ir::Task& t : p_.tasks)
      for (const ir::Wait& w : t.waits) used[index(w.event)] = true;
    std::vector<ir::EventId> renamed(p_.events.size());
    std::vector<ir::Event> kept;
    for (size_t e = 0; e < p_.events.size(); ++e) {
      renamed[e] = ir::id_of<ir::EventId>(kept.size());
      if (used[e]) kept.push_back(std::move(p_.events[e]));
    }
    p_.events = std::move(kept);
    for (ir::Task& t : p_.tasks) {
      std::erase_if(t.signals, [&](const ir::Signal& s) { return !used[index(s.event)]; });
      for (ir::Signal& s : t.signals) s.event = renamed[index(s.event)];
      for (ir::Wait& w : t.waits) w.event = renamed[index(w.event)];
    }
  }

  ir::Program& p_;
  size_t ctas_;
  std::vector<std::vector<size_t>> producers_;
  std::vector<Clocks> event_clocks_;
  std::vector<int64_t> waiters_;
  std::vector<int> ranks_;
  std::vector<Clocks> streams_;  // per entry of ranks_, by CTA
  int64_t removed_ = 0;
};

}  // namespace

bool prune_sync(ir::Program& program, Context& context) {
  context.statistics["waits pruned"] = Pruner(program).run();
  int64_t waits = 0, signals = 0;
  for (const ir::Task& t : program.tasks) {
    waits += static_cast<int64_t>(t.waits.size());
    signals += static_cast<int64_t>(t.signals.size());
  }
  context.statistics["waits"] = waits;
  context.statistics["signals"] = signals;
  context.statistics["events"] = static_cast<int64_t>(program.events.size());
  return true;
}

}  // namespace maco::passes
