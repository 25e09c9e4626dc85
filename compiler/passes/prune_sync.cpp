// prune_sync.cpp: removes waits that stream order or other waits already imply.
//
// A wait of task t for a local event is implied when every producer of the event happens before t without it. The pass walks the tasks in
// Program order, in which every dependency points forward, and keeps for each task a vector clock: of every stream, how many tasks are known
// to have ended. Clocks are of one rank, and a task that some rank skips passes on only what stream order gives, because there it waits for
// nothing. Events that nobody waits for any more go, with their signals. The order of tasks stays.

#include <algorithm>
#include <memory>

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
      : p_(p), ctas_(static_cast<size_t>(p.ctas)), producers_(p.events.size()), event_clock_(p.events.size()), waiters_(p.events.size(), 0),
        stream_(ctas_, Clock(ctas_, 0)) {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      for (const ir::Signal& s : p_.tasks[t].signals)
        if (local(s.event)) producers_[index(s.event)].push_back(t);
      for (const ir::Wait& w : p_.tasks[t].waits) waiters_[index(w.event)]++;
    }
  }

  int64_t run() {
    const uint64_t world = p_.world >= 64 ? ~uint64_t{0} : (uint64_t{1} << p_.world) - 1;
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      ir::Task& task = p_.tasks[t];
      Clock now = stream_[static_cast<size_t>(task.sm)];
      // Latest producers first: they are the most likely to imply the others.
      std::vector<ir::Wait> waits;
      std::vector<ir::Wait> locals;
      for (const ir::Wait& w : task.waits) (local(w.event) && w.lag == 0 ? locals : waits).push_back(w);
      std::stable_sort(locals.begin(), locals.end(),
                       [&](const ir::Wait& a, const ir::Wait& b) { return last_producer(a.event) > last_producer(b.event); });
      for (const ir::Wait& w : locals) {
        const auto& producers = producers_[index(w.event)];
        const bool implied =
            std::all_of(producers.begin(), producers.end(), [&](size_t q) {
              return now[static_cast<size_t>(p_.tasks[q].sm)] > p_.tasks[q].place;
            });
        if (implied) {
          ++removed_;
        } else {
          waits.push_back(w);
          join(now, *event_clock(w.event));
        }
        release(w.event);
      }
      task.waits = std::move(waits);
      Clock& stream = stream_[static_cast<size_t>(task.sm)];
      if ((task.ranks & world) == world) stream = std::move(now);
      stream[static_cast<size_t>(task.sm)] = task.place + 1;
      for (const ir::Signal& s : task.signals)
        if (local(s.event) && waiters_[index(s.event)] > 0) {
          auto& clock = event_clock_[index(s.event)];
          if (!clock) clock = std::make_unique<Clock>(stream);
          else join(*clock, stream);
        }
    }
    drop_unused();
    return removed_;
  }

 private:
  bool local(ir::EventId e) const { return p_[e].kind == ir::EventKind::Local; }
  size_t last_producer(ir::EventId e) const { return producers_[index(e)].empty() ? 0 : producers_[index(e)].back(); }
  const Clock* event_clock(ir::EventId e) const { return event_clock_[index(e)].get(); }
  void release(ir::EventId e) {
    if (--waiters_[index(e)] == 0) event_clock_[index(e)].reset();
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
  std::vector<std::unique_ptr<Clock>> event_clock_;
  std::vector<int64_t> waiters_;
  std::vector<Clock> stream_;
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
