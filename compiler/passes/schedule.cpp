// schedule.cpp: an SM and a place for each task.
//
// Tasks keep Program order in every stream, the same on all ranks: every dependency then points
// forward in one order of all tasks, so that no choice made here can deadlock. Each task goes to
// the SM of its role that is free first by the tasks' estimated times; ties go round, so that an op
// of a few tasks doesn't always meet the same SMs.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/passes/passes.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

// Microseconds that a task takes by the bytes it touches on one SM's share of the memory, plus a
// hand-off.
double estimate(const ir::Program& program, const ir::Task& task, const cost::Machine& machine) {
  double bytes = 0;
  for (const ir::Access& a : task.accesses) {
    const ir::Region& r = a.region;
    bytes +=
        static_cast<double>((r.r1 - r.r0) * (r.c1 - r.c0) * ir::size_of(program[r.buffer].dtype));
  }
  return 0.7 + bytes / (machine.memory_rate / machine.sms) * 1e6;
}

std::vector<int32_t> homes(const ir::Program& program, ir::Role role, const std::string& op_kind) {
  std::vector<int32_t> sms;
  for (const ir::RoleSpan& s : program.roles)
    if (s.role == role &&
        (s.ops.empty() || std::find(s.ops.begin(), s.ops.end(), op_kind) != s.ops.end()))
      for (int32_t sm = s.begin; sm < s.end; ++sm) sms.push_back(sm);
  return sms;
}

}  // namespace

bool schedule(ir::Program& program, PassContext& context) {
  std::map<std::pair<ir::Role, std::string>, std::vector<int32_t>> home_of;
  std::map<std::pair<ir::Role, std::string>, size_t> turn;
  std::vector<double> free_at(static_cast<size_t>(program.ctas), 0.0);
  std::vector<int32_t> length(static_cast<size_t>(program.ctas), 0);
  for (ir::Task& task : program.tasks) {
    const auto key = std::make_pair(task.role, program[task.call].op_kind);
    auto [it, fresh] = home_of.try_emplace(key);
    if (fresh) it->second = homes(program, key.first, key.second);
    const std::vector<int32_t>& sms = it->second;
    if (sms.empty()) {
      context.diagnostics.error(
          program[task.call].loc,
          fmt::format("no SM of role '{}' runs '{}'", ir::name(task.role), key.second));
      return false;
    }
    size_t& start = turn[key];
    size_t best = start % sms.size();
    for (size_t k = 1; k < sms.size(); ++k) {
      const size_t i = (start + k) % sms.size();
      if (free_at[static_cast<size_t>(sms[i])] < free_at[static_cast<size_t>(sms[best])] - 1e-9)
        best = i;
    }
    start = best + 1;
    const auto sm = static_cast<size_t>(sms[best]);
    task.sm = sms[best];
    task.place = length[sm]++;
    free_at[sm] += estimate(program, task, context.machine);
  }
  program.stage = ir::Stage::Scheduled;
  return true;
}

}  // namespace maco::passes
