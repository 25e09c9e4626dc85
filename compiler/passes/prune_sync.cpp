// prune_sync.cpp: removes waits that stream order or other waits already imply, on any ranks.
//
// A wait of task t for a local event is implied when every producer of the event happens before t
// without it. The pass walks the tasks in Program order and follows what each knows to have ended
// (known.h). What peers signal counts as well: it tells what they had heard. Packets don't: they
// show their own data and nothing else. No pair of tasks loses its order: what happens before what
// stays as it was. Events without waits are removed, with their signals. The order of tasks
// stays.

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/passes/known.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

class Pruner {
 public:
  explicit Pruner(ir::Program& p)
      : p_(p),
        known_(p, producers_of_events(p), Known::Peers::Followed),
        last_(p.events.size(), 0) {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Signal& s : p_.tasks[t].signals) last_[index(s.event)] = t;
  }

  int64_t run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) visit(ir::id_of<ir::TaskId>(t));
    drop_unused();
    return removed_;
  }
  int64_t joins() const { return known_.joins(); }

 private:
  void visit(ir::TaskId id) {
    ir::Task& task = p_[id];
    std::vector<ir::Wait> waits, locals;
    for (const ir::Wait& w : task.waits)
      (p_[w.event].kind == ir::EventKind::Local && w.lag == 0 ? locals : waits).push_back(w);
    // Latest producers first: they are the most likely to imply the others.
    std::stable_sort(locals.begin(), locals.end(), [&](const ir::Wait& a, const ir::Wait& b) {
      return last_[index(a.event)] > last_[index(b.event)];
    });
    known_.begin(id, before_);
    now_ = before_;
    std::vector<ir::Wait> needed;
    for (const ir::Wait& w : locals) {
      if (has(id, w, now_)) continue;
      needed.push_back(w);
      hear(id, w, now_);
    }
    // A wait that came first because of its latest producer may be implied by those that came
    // behind it.
    if (needed.size() > 1) needed = without_implied(id, needed);
    removed_ += static_cast<int64_t>(locals.size() - needed.size());
    known_.end(id, now_, !waits.empty() || !needed.empty());
    for (const ir::Wait& w : task.waits) {
      if (p_[w.event].kind == ir::EventKind::Local) known_.done(group(w));
      if (p_[w.event].kind == ir::EventKind::Peer) known_.heard_peers(w.event);
    }
    waits.insert(waits.end(), needed.begin(), needed.end());
    task.waits = std::move(waits);
  }

  std::vector<ir::Wait> without_implied(ir::TaskId id, const std::vector<ir::Wait>& waits) {
    std::vector<Clocks> behind(waits.size());  // by wait: what the later ones tell
    behind.back() = before_;
    for (size_t i = waits.size() - 1; i > 0; --i) {
      behind[i - 1] = behind[i];
      hear(id, waits[i], behind[i - 1]);
    }
    std::vector<ir::Wait> needed;
    Clocks front = before_;
    for (size_t i = 0; i < waits.size(); ++i) {
      known_.join(behind[i], front);
      if (has(id, waits[i], behind[i])) continue;
      needed.push_back(waits[i]);
      hear(id, waits[i], front);
    }
    return needed;
  }

  // Events by number are the groups.
  static uint32_t group(const ir::Wait& w) { return static_cast<uint32_t>(index(w.event)); }
  bool has(ir::TaskId id, const ir::Wait& w, const Clocks& clocks) {
    return known_.has(clocks, id, group(w));
  }
  void hear(ir::TaskId id, const ir::Wait& w, Clocks& clocks) { known_.hear(clocks, id, group(w)); }

  void drop_unused() {
    std::vector<bool> used(p_.events.size(), false);
    // A hint that no task waits for says which packets its signallers send.
    for (size_t e = 0; e < p_.events.size(); ++e)
      used[e] = p_.events[e].kind == ir::EventKind::Hint;
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
  Known known_;
  std::vector<size_t> last_;  // by event: its last producer
  Clocks before_, now_;       // of the task: without waits for local events, and with them
  int64_t removed_ = 0;
};

}  // namespace

bool prune_sync(ir::Program& program, PassContext& context) {
  Pruner pruner(program);
  context.statistics["waits pruned"] = pruner.run();
  context.statistics["clocks joined by prune-sync"] = pruner.joins();
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
