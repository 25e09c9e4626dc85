// schedule.cpp: an SM and a place for each task.
//
// Tasks keep Program order in every stream, the same on all ranks: every dependency then points
// forward in one order of all tasks, or in the order that the tile pass has found for sends and
// receives, so that no choice made here can deadlock. Each task goes to
// the SM of its role that can start it first: by the tasks' estimated times, and not before all is
// written that its call reads. An SM that waits for that as the others do is no worse for what it
// did before. Ties go to the SM that has been free for longest, then round, so that an op of a few
// tasks doesn't always meet the same SMs.
//
// Where priorities differ, the tasks are simulated (by_priority.h), and Program order becomes the
// order in which they start: among those that are ready for an SM the highest priority goes first.
// Where ranks pass on what they receive, the order of the ops alone follows priorities.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/functions/function.h"
#include "compiler/passes/by_priority.h"
#include "compiler/passes/passes.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

constexpr double kSame = 1e-9;  // microseconds that make no difference

std::vector<int32_t> homes(const ir::Program& program, ir::Role role, const std::string& op_kind) {
  std::vector<int32_t> sms;
  for (const ir::CtaRange& s : program.roles)
    if (s.role == role &&
        (s.ops.empty() || std::find(s.ops.begin(), s.ops.end(), op_kind) != s.ops.end()))
      for (int32_t sm = s.begin; sm < s.end; ++sm) sms.push_back(sm);
  return sms;
}

// The SMs that may run each task, and how long it takes there; false if there are none.
class Homes {
 public:
  bool find(const ir::Program& program, PassContext& context) {
    std::map<std::pair<ir::Role, std::string_view>, uint32_t> numbers;
    for (const ir::Task& task : program.tasks) {
      const std::string& kind = program[task.call].op_kind;
      const auto [it, fresh] =
          numbers.try_emplace({task.role, kind}, static_cast<uint32_t>(sms.size()));
      if (fresh) sms.push_back(homes(program, task.role, kind));
      if (sms[it->second].empty()) {
        context.diagnostics.error(
            program[task.call].loc,
            fmt::format("no SM of role '{}' runs '{}'", ir::name(task.role), kind));
        return false;
      }
      demands.push_back({functions::microseconds(program, task, context.machine), it->second});
    }
    return true;
  }
  std::vector<std::vector<int32_t>> sms;
  std::vector<Demand> demands;  // by task
};

/// When the data of calls is there, in microseconds from the launch.
class Readiness {
 public:
  explicit Readiness(const ir::Program& program)
      : written_(program.buffers.size(), 0.0),
        ready_(program.calls.size(), kUnknown),
        ended_(program.calls.size(), 0.0) {}

  /// When all is written that the task's call reads: as its first task finds it, since tiles of one
  /// call don't wait for each other.
  double of(const ir::Task& task) {
    double& ready = ready_[index(task.call)];
    if (ready != kUnknown) return ready;
    ready = 0;
    for (const ir::Access& a : task.accesses)
      if (!a.writes()) ready = std::max(ready, written_[index(a.region.buffer)]);
    for (const ir::CallId call : task.after) ready = std::max(ready, ended_[index(call)]);
    return ready;
  }
  void end(const ir::Task& task, double at) {
    for (const ir::Access& a : task.accesses)
      if (a.writes())
        written_[index(a.region.buffer)] = std::max(written_[index(a.region.buffer)], at);
    ended_[index(task.call)] = std::max(ended_[index(task.call)], at);
  }

 private:
  static constexpr double kUnknown = -1;
  std::vector<double> written_;        // by buffer
  std::vector<double> ready_, ended_;  // by call
};

// Each task in Program order on the SM that can start it first.
void place_in_order(ir::Program& program, const Homes& all) {
  std::vector<double> free_at(static_cast<size_t>(program.ctas), 0.0);
  std::vector<size_t> turn(all.sms.size(), 0);
  Readiness readiness(program);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    ir::Task& task = program.tasks[t];
    const std::vector<int32_t>& sms = all.sms[all.demands[t].home];
    size_t& first = turn[all.demands[t].home];
    const double ready = readiness.of(task);
    // An SM that is free before the data is there starts when it is.
    const auto earlier = [&](size_t a, size_t b) {
      const double x = free_at[static_cast<size_t>(sms[a])],
                   y = free_at[static_cast<size_t>(sms[b])];
      const double late = std::max(x, ready) - std::max(y, ready);
      return late < -kSame || (late < kSame && x < y - kSame);
    };
    size_t best = first % sms.size();
    for (size_t k = 1; k < sms.size(); ++k)
      if (const size_t i = (first + k) % sms.size(); earlier(i, best)) best = i;
    first = best + 1;
    task.sm = sms[best];
    double& free = free_at[static_cast<size_t>(sms[best])];
    free = std::max(free, ready) + all.demands[t].microseconds;
    readiness.end(task, free);
  }
}

// Puts the tasks in the order in which they start if the higher priority goes first.
void place_by_priority(ir::Program& program, const Homes& all) {
  std::vector<ir::Task> tasks;
  for (const Turn& turn : by_priority(program, all.demands, all.sms)) {
    tasks.push_back(std::move(program[turn.task]));
    tasks.back().sm = turn.sm;
  }
  program.tasks = std::move(tasks);
}

// Whether a rank waits for what a task does on another that the list has later: then ranks keep the
// order of the list, in which they don't wait for each other for ever.
bool passes_on(const ir::Program& program) {
  std::vector<size_t> last(program.events.size(), 0);  // that signals the event
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Signal& s : program.tasks[t].signals) last[index(s.event)] = t;
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Wait& w : program.tasks[t].waits)
      if (w.lag == 0 && last[index(w.event)] > t) return true;
  return false;
}

}  // namespace

bool schedule(ir::Program& program, PassContext& context) {
  Homes all;
  if (!all.find(program, context)) return false;
  const auto differ = [](const ir::Task& a, const ir::Task& b) { return a.priority != b.priority; };
  if (std::adjacent_find(program.tasks.begin(), program.tasks.end(), differ) ==
          program.tasks.end() ||
      passes_on(program))
    place_in_order(program, all);
  else
    place_by_priority(program, all);
  std::vector<int32_t> length(static_cast<size_t>(program.ctas), 0);
  for (ir::Task& task : program.tasks) task.place = length[static_cast<size_t>(task.sm)]++;
  program.stage = ir::Stage::Scheduled;
  return true;
}

}  // namespace maco::passes
