#include "compiler/passes/by_priority.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "compiler/passes/dependencies.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

using ir::TaskId;

class Run {
 public:
  Run(const ir::Program& p, const std::vector<Demand>& demands,
      const std::vector<std::vector<int32_t>>& homes)
      : p_(p),
        demands_(demands),
        homes_of_(static_cast<size_t>(p.ctas)),
        ready_(homes.size()),
        missing_(p.tasks.size(), 0),
        sets_of_(p.tasks.size()) {
    for (size_t h = 0; h < homes.size(); ++h)
      for (int32_t sm : homes[h]) homes_of_[static_cast<size_t>(sm)].push_back(h);
    on_data();
    on_calls();
    on_peers();
  }

  std::vector<Turn> run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      if (missing_[t] == 0) make_ready(t);
    for (int32_t sm = 0; sm < p_.ctas; ++sm) idle_.insert({0.0, sm});
    for (start(); !running_.empty(); start()) {
      now_ = running_.top().first;
      for (; !running_.empty() && running_.top().first <= now_; running_.pop())
        end(running_.top().second);
    }
    MACO_CHECK(turns_.size() == p_.tasks.size(), "tasks wait for each other");
    return std::move(turns_);
  }

 private:
  struct Set {
    size_t missing = 0;           // how many of its tasks haven't ended
    std::vector<size_t> waiting;  // tasks that wait for it
  };

  size_t add_set(const std::vector<TaskId>& tasks) {
    for (TaskId t : tasks) sets_of_[index(t)].push_back(sets_.size());
    sets_.push_back({tasks.size(), {}});
    return sets_.size() - 1;
  }
  void wait(size_t task, size_t set) {
    sets_[set].waiting.push_back(task);
    ++missing_[task];
  }

  void on_data() {
    const Dependencies found = find_dependencies(p_);
    for (const std::vector<TaskId>& tasks : found.sets) add_set(tasks);
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (uint32_t set : found.of(ir::id_of<TaskId>(t)))
        if (sets_[set].missing > 0) wait(t, set);
  }
  // Task::after: the named calls come earlier in the list of tasks.
  void on_calls() {
    std::vector<std::vector<TaskId>> tasks(p_.calls.size());
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      tasks[index(p_.tasks[t].call)].push_back(ir::id_of<TaskId>(t));
    std::vector<std::optional<size_t>> set_of(p_.calls.size());
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (ir::CallId c : p_.tasks[t].after) {
        if (tasks[index(c)].empty()) continue;
        if (!set_of[index(c)]) set_of[index(c)] = add_set(tasks[index(c)]);
        wait(t, *set_of[index(c)]);
      }
  }
  // Each wait is for the tasks that signal its event earlier in Program order.
  void on_peers() {
    std::vector<std::vector<TaskId>> signallers(p_.events.size());
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Signal& s : p_.tasks[t].signals)
        signallers[index(s.event)].push_back(ir::id_of<TaskId>(t));
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Wait& w : p_.tasks[t].waits) {
        std::vector<TaskId> before = signallers[index(w.event)];
        std::erase_if(before, [&](TaskId s) { return index(s) >= t; });
        if (!before.empty() && w.lag == 0) wait(t, add_set(before));
      }
  }

  void make_ready(size_t t) {
    ready_[demands_[t].home].insert({-static_cast<int>(p_.tasks[t].priority), t});
  }
  // Each idle SM takes a ready task.
  void start() {
    for (auto at = idle_.begin(); at != idle_.end();) {
      const int32_t sm = at->second;
      std::set<Key>* best = nullptr;
      for (size_t h : homes_of_[static_cast<size_t>(sm)])
        if (!ready_[h].empty() && (!best || *ready_[h].begin() < *best->begin())) best = &ready_[h];
      if (!best) {
        ++at;
        continue;
      }
      const size_t t = best->begin()->second;
      best->erase(best->begin());
      turns_.push_back({ir::id_of<TaskId>(t), sm});
      running_.push({now_ + demands_[t].microseconds, turns_.size() - 1});
      at = idle_.erase(at);
    }
  }
  void end(size_t turn) {
    const size_t task = index(turns_[turn].task);
    idle_.insert({now_, turns_[turn].sm});
    for (size_t set : sets_of_[task])
      if (--sets_[set].missing == 0)
        for (size_t t : sets_[set].waiting)
          if (--missing_[t] == 0) make_ready(t);
  }

  using Key = std::pair<int, size_t>;        // higher priority first, then Program order
  using Ending = std::pair<double, size_t>;  // when, and which turn

  const ir::Program& p_;
  const std::vector<Demand>& demands_;
  std::vector<std::vector<size_t>> homes_of_;  // by SM
  std::vector<std::set<Key>> ready_;           // by home
  std::vector<Set> sets_;
  std::vector<size_t> missing_;               // by task: how many of its sets haven't ended
  std::vector<std::vector<size_t>> sets_of_;  // by task: the sets that contain it
  double now_ = 0;
  std::set<std::pair<double, int32_t>> idle_;  // since when, and the SM
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running_;
  std::vector<Turn> turns_;
};

}  // namespace

std::vector<Turn> by_priority(const ir::Program& program, const std::vector<Demand>& demands,
                              const std::vector<std::vector<int32_t>>& homes) {
  return Run(program, demands, homes).run();
}

}  // namespace maco::passes
