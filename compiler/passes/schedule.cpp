// schedule.cpp: an SM and a place for each task.
//
// Tasks keep Program order in every stream, the same on all ranks: every dependency then points
// forward in one order of all tasks, or in the order that the tile pass has found for sends and
// receives, so that no choice made here can deadlock. Each task goes to the SM of its role that can
// start it first on all ranks that run it: by the tasks' estimated times, and not before what it
// depends on has ended, which takes a while to be heard of on other SMs. So a task that follows one
// alone stays on its SM, without a wait. An SM that waits as the others do is no worse for what it
// did before. Ties go to the SM that has been free for longest, then round, so that an op of a few
// tasks doesn't always meet the same SMs.
//
// Where priorities differ, the tasks are simulated (by_priority.h), and Program order becomes the
// order in which they start: among those that are ready for an SM the highest priority goes first.
// Where ranks pass on what they receive, the order of the ops alone follows priorities.
//
// Collectives that are handed over have one SM in common, where each is taken back right behind its
// hand-over: what runs them does so in one order.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/cost/model.h"
#include "compiler/functions/function.h"
#include "compiler/functions/hand_over.h"
#include "compiler/passes/by_priority.h"
#include "compiler/passes/dependencies.h"
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
    std::map<std::tuple<ir::Role, std::string_view, bool>, uint32_t> numbers;
    int32_t common = -1;  // of what is handed over
    for (const ir::Task& task : program.tasks) {
      const std::string& kind = program[task.call].op_kind;
      const bool handed = functions::is_hand_over(program[task.call].function);
      const auto [it, fresh] =
          numbers.try_emplace({task.role, kind, handed}, static_cast<uint32_t>(sms.size()));
      if (fresh) sms.push_back(homes(program, task.role, kind));
      std::vector<int32_t>& all = sms[it->second];
      if (fresh && handed && !all.empty()) {
        hands_over = true;
        if (common < 0) common = all.back();
        if (std::find(all.begin(), all.end(), common) == all.end()) {
          context.diagnostics.error(program[task.call].loc,
                                    fmt::format("'sm_roles' gives '{}' no SM that runs all that is "
                                                "handed over to NCCL: SM {} does the rest",
                                                kind, common));
          return false;
        }
        all = {common};
      }
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
  bool hands_over = false;
};

/// When what a task depends on has ended, in microseconds from the launch.
class Readiness {
 public:
  explicit Readiness(const ir::Program& program)
      : p_(program),
        found_(find_dependencies(program)),
        ends_(program.tasks.size(), 0.0),
        of_sets_(found_.sets.size()),
        told_(program.events.size(), kNever) {}

  struct Ready {
    double elsewhere = 0;  // on an SM that has to be told
    /// On one that need not be, since it ran itself what ended last, and has heard of all else by
    /// then; -1: there is none.
    int32_t sm = -1;
    double there = 0;
  };
  /// Once the tasks before it have been placed.
  Ready of(ir::TaskId task) {
    Last last;
    for (const uint32_t set : found_.of(task)) {
      Last& known = of_sets_[set];
      if (known.sm < 0)
        for (const ir::TaskId t : found_.sets[set]) known.add(p_[t].sm, ends_[index(t)]);
      last.add(known);
    }
    // What ranks tell each other, which every SM hears alike: as if this rank's task were the
    // other's.
    double told = kNever;
    for (const ir::Wait& w : p_[task].waits)
      if (w.lag == 0) told = std::max(told, told_[index(w.event)] + cost::kHop);
    if (last.sm < 0) return {std::max(told, 0.0), -1, 0};
    Ready ready{std::max(last.end + cost::kHandOver, told), -1, 0};
    if (last.other + cost::kHandOver <= last.end) {
      ready.sm = last.sm, ready.there = std::max(last.end, told);
      // Where all would wait for peers, on this one there is a wait less.
      if (told > kNever) ready.there -= 2 * kSame;
    }
    return ready;
  }
  void end(ir::TaskId task, double at) {
    ends_[index(task)] = at;
    for (const ir::Signal& s : p_[task].signals)
      told_[index(s.event)] = std::max(told_[index(s.event)], at);
  }

 private:
  static constexpr double kNever = -1e30;
  /// Of some tasks, which SM ended last and when, and when the last of the others did.
  struct Last {
    int32_t sm = -1;
    double end = 0, other = kNever;
    void add(int32_t s, double at) {
      if (s == sm) {
        end = std::max(end, at);
      } else if (sm < 0 || at > end) {
        if (sm >= 0) other = std::max(other, end);
        sm = s, end = at;
      } else {
        other = std::max(other, at);
      }
    }
    void add(const Last& l) {
      if (l.sm < 0) return;
      add(l.sm, l.end);
      other = std::max(other, l.other);
    }
  };
  const ir::Program& p_;
  const Dependencies found_;
  std::vector<double> ends_;   // by task
  std::vector<Last> of_sets_;  // as far as they were asked for
  std::vector<double> told_;   // by event: when the last of those placed signals it
};

/// When each SM has run what it was given so far, on all ranks that run a task.
class Busy {
 public:
  explicit Busy(const ir::Program& program)
      : all_(program.world >= 64 ? ~uint64_t{0} : (uint64_t{1} << program.world) - 1),
        sms_(static_cast<size_t>(program.ctas)) {
    for (const ir::Task& task : program.tasks) free_at_.try_emplace(task.ranks & all_, sms_, 0.0);
  }
  /// By SM.
  const std::vector<double>& free_at(uint64_t ranks) const {
    return free_at_.find(ranks & all_)->second;
  }
  void end(uint64_t ranks, int32_t sm, double at) {
    for (auto& [others, times] : free_at_)
      if (others & ranks)
        times[static_cast<size_t>(sm)] = std::max(times[static_cast<size_t>(sm)], at);
  }

 private:
  const uint64_t all_;
  const size_t sms_;
  std::map<uint64_t, std::vector<double>> free_at_;  // by the ranks that run a task
};

// Each task in Program order on the SM that can start it first.
void place_in_order(ir::Program& program, const Homes& all) {
  Busy busy(program);
  std::vector<size_t> turn(all.sms.size(), 0);
  Readiness readiness(program);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    ir::Task& task = program.tasks[t];
    const std::vector<int32_t>& sms = all.sms[all.demands[t].home];
    size_t& first = turn[all.demands[t].home];
    const Readiness::Ready ready = readiness.of(ir::id_of<ir::TaskId>(t));
    const std::vector<double>& free_at = busy.free_at(task.ranks);
    // An SM that is free before the data is there starts when it is.
    const auto start = [&](int32_t sm) {
      return std::max(free_at[static_cast<size_t>(sm)],
                      sm == ready.sm ? ready.there : ready.elsewhere);
    };
    const auto earlier = [&](size_t a, size_t b) {
      const double late = start(sms[a]) - start(sms[b]);
      return late < -kSame || (late < kSame && free_at[static_cast<size_t>(sms[a])] <
                                                   free_at[static_cast<size_t>(sms[b])] - kSame);
    };
    size_t best = first % sms.size();
    for (size_t k = 1; k < sms.size(); ++k)
      if (const size_t i = (first + k) % sms.size(); earlier(i, best)) best = i;
    first = best + 1;
    task.sm = sms[best];
    const double end = start(task.sm) + all.demands[t].microseconds;
    busy.end(task.ranks, task.sm, end);
    readiness.end(ir::id_of<ir::TaskId>(t), end);
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

// Takes back what is handed over right behind that, whatever the order was.
void join_hand_overs(ir::Program& program) {
  std::vector<ir::Task> tasks;
  std::vector<bool> moved(program.tasks.size(), false);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    if (moved[t]) continue;
    tasks.push_back(program.tasks[t]);
    if (program[program.tasks[t].call].function != "hand_over") continue;
    // Its own is the next of the op that runs on the same ranks.
    for (size_t u = t + 1; u < program.tasks.size(); ++u) {
      const ir::Task& back = program.tasks[u];
      if (moved[u] || program[back.call].function != "take_back" ||
          program[back.call].op != program[program.tasks[t].call].op ||
          back.ranks != program.tasks[t].ranks)
        continue;
      moved[u] = true;
      tasks.push_back(back);
      break;
    }
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
  if (all.hands_over) join_hand_overs(program);
  std::vector<int32_t> length(static_cast<size_t>(program.ctas), 0);
  for (ir::Task& task : program.tasks) task.place = length[static_cast<size_t>(task.sm)]++;
  program.stage = ir::Stage::Scheduled;
  return true;
}

}  // namespace maco::passes
