// schedule.cpp: an SM and a place for each task.
//
// Tasks keep Program order in every stream, the same on all ranks: every dependency then points
// forward in one order of all tasks, so that no choice made here can deadlock. Each task goes to
// the SM of its role that is free first by the tasks' estimated times; ties go round, so that an op
// of a few tasks doesn't always meet the same SMs.
//
// Where priorities differ, the tasks are simulated (by_priority.h), and Program order becomes the
// order in which they start: among those that are ready for an SM the highest priority goes first.

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

// Each task in Program order on the SM that is free first.
void place_in_order(ir::Program& program, const Homes& all) {
  std::vector<double> free_at(static_cast<size_t>(program.ctas), 0.0);
  std::vector<size_t> turn(all.sms.size(), 0);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const std::vector<int32_t>& sms = all.sms[all.demands[t].home];
    size_t& start = turn[all.demands[t].home];
    size_t best = start % sms.size();
    for (size_t k = 1; k < sms.size(); ++k) {
      const size_t i = (start + k) % sms.size();
      if (free_at[static_cast<size_t>(sms[i])] < free_at[static_cast<size_t>(sms[best])] - 1e-9)
        best = i;
    }
    start = best + 1;
    program.tasks[t].sm = sms[best];
    free_at[static_cast<size_t>(sms[best])] += all.demands[t].microseconds;
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

}  // namespace

bool schedule(ir::Program& program, PassContext& context) {
  Homes all;
  if (!all.find(program, context)) return false;
  const auto differ = [](const ir::Task& a, const ir::Task& b) { return a.priority != b.priority; };
  if (std::adjacent_find(program.tasks.begin(), program.tasks.end(), differ) == program.tasks.end())
    place_in_order(program, all);
  else
    place_by_priority(program, all);
  std::vector<int32_t> length(static_cast<size_t>(program.ctas), 0);
  for (ir::Task& task : program.tasks) task.place = length[static_cast<size_t>(task.sm)]++;
  program.stage = ir::Stage::Scheduled;
  return true;
}

}  // namespace maco::passes
