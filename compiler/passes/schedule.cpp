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
// Tasks that need a mate have it behind them: the two go to neighbours, which both start when both
// can. Tasks of functions that follow (function.h) move behind the one that they depend on alone.
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
#include <span>
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
#include "ir/ranks.h"

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
    const ir::Task* last = nullptr;
    uint32_t home = 0;  // of `last`
    for (const ir::Task& task : program.tasks) {
      if (last && last->call == task.call && last->role == task.role) {
        demands.push_back({functions::microseconds(program, task, context.machine), home});
        continue;
      }
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
      last = &task, home = it->second;
      demands.push_back({functions::microseconds(program, task, context.machine), home});
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
  Readiness(const ir::Program& program, const cost::Machine& machine)
      : p_(program),
        machine_(machine),
        found_(find_dependencies(program)),
        ends_(program.tasks.size(), 0.0),
        of_sets_(found_.sets.size()),
        told_(program.events.size(), kNever) {}

  struct Ready {
    double elsewhere = 0;  // on an SM that must hear of the tasks before
    /// An SM that needs to hear of none: it ran the last of them itself, and has heard of the rest
    /// by then; -1: there is none.
    int32_t sm = -1;
    double there = 0;  // on that SM
  };
  /// When the task can begin. The tasks before it must have been placed.
  Ready of(ir::TaskId task) {
    Last last;
    for (const uint32_t set : found_.of(task)) {
      Last& known = of_sets_[set];
      if (known.sm < 0)
        for (const ir::TaskId t : found_.sets[set]) known.add(p_[t].sm, ends_[index(t)]);
      last.add(known);
    }
    // The signals of other ranks, which all SMs hear at the same time. The task of this rank that
    // sends them stands for the other rank's.
    double told = kNever;
    for (const ir::Wait& w : p_[task].waits)
      if (w.lag == 0) told = std::max(told, told_[index(w.event)] + machine_.hop);
    if (last.sm < 0) return {std::max(told, 0.0), -1, 0};
    Ready ready{std::max(last.end + machine_.hand_over, told), -1, 0};
    if (last.other + machine_.hand_over <= last.end) {
      ready.sm = last.sm, ready.there = std::max(last.end, told);
      // Where all would wait for peers, on this one there is a wait less.
      if (told > kNever) ready.there -= 2 * kSame;
    }
    return ready;
  }
  int64_t searches() const { return found_.searches; }
  void end(ir::TaskId task, double at) {
    ends_[index(task)] = at;
    for (const ir::Signal& s : p_[task].signals)
      told_[index(s.event)] = std::max(told_[index(s.event)], at);
  }

 private:
  static constexpr double kNever = -1e30;
  /// The SM that ended last among those that ran some tasks, when it ended, and when the last other
  /// SM did.
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
  const cost::Machine& machine_;
  const Dependencies found_;
  std::vector<double> ends_;   // by task
  std::vector<Last> of_sets_;  // as far as they were asked for
  std::vector<double> told_;   // by event: when the last of those placed signals it
};

/// When each SM has run what it was given so far, on all ranks that run a task.
class Busy {
 public:
  explicit Busy(const ir::Program& program)
      : all_(ir::all_ranks(program.world)), sms_(static_cast<size_t>(program.ctas)) {
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

// Does a task need a mate?
bool needs_mate(const ir::Program& program, const ir::Task& task) {
  const functions::Function* function = functions::find_function(program[task.call]);
  return function && function->mates;
}

// By home, the first of each two neighbours.
std::vector<std::vector<int32_t>> find_neighbours(const ir::Program& program, const Homes& all) {
  std::vector<std::vector<int32_t>> neighbours(all.sms.size());
  if (program.ctas % 2 != 0) return neighbours;  // a cluster is of two
  for (size_t home = 0; home < all.sms.size(); ++home) {
    std::vector<int32_t> sms = all.sms[home];
    std::sort(sms.begin(), sms.end());
    for (size_t i = 0; i + 1 < sms.size(); ++i)
      if (sms[i] % 2 == 0 && sms[i + 1] == sms[i] + 1) neighbours[home].push_back(sms[i]);
  }
  return neighbours;
}

// Whether each task that needs a mate is followed by its mate, and two neighbouring SMs run both.
// The tile pass sees to that; an author of a Program may not.
bool check_mates(const ir::Program& program, const Homes& all, bool in_order,
                 PassContext& context) {
  const auto neighbours = find_neighbours(program, all);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    if (!needs_mate(program, program.tasks[t])) continue;
    const char* why = !in_order ? "priorities would part it from its mate"
                      : t + 1 == program.tasks.size() ||
                              !ir::may_be_mates(program, program.tasks[t], program.tasks[t + 1])
                          ? "no mate is behind it"
                      : neighbours[all.demands[t].home].empty()
                          ? "no two neighbouring SMs run it and its mate"
                          : nullptr;
    if (why) {
      context.diagnostics.error(
          program[program.tasks[t].call].loc,
          fmt::format("{}: {}", ir::describe(program, ir::id_of<ir::TaskId>(t)), why));
      return false;
    }
    ++t;
  }
  return true;
}

// Each task, or two mates, in Program order on the SMs that can start them first.
class InOrder {
 public:
  InOrder(ir::Program& program, const Homes& all, const cost::Machine& machine)
      : p_(program),
        all_(all),
        busy_(program),
        readiness_(program, machine),
        turn_(all.sms.size(), 0),
        mates_turn_(all.sms.size(), 0),
        neighbours_(find_neighbours(program, all)) {}
  void run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      if (needs_mate(p_, p_.tasks[t]))
        place_mates(t++);
      else
        place(t);
  }
  /// How often an SM was compared with another for a task.
  int64_t compared() const { return compared_; }
  int64_t searches() const { return readiness_.searches(); }

 private:
  size_t home(size_t t) const { return all_.demands[t].home; }
  using Times = std::vector<double>;  // by SM
  // An SM that is free before the data is there starts when it is.
  static double start(const Times& free_at, const Readiness::Ready& ready, int32_t sm) {
    return std::max(free_at[static_cast<size_t>(sm)],
                    sm == ready.sm ? ready.there : ready.elsewhere);
  }
  // The one of `sms` with the least start, then with the least free, both functions of an SM. If
  // several are equal, they take turns.
  template <class Start, class Free>
  int32_t first_of(const std::vector<int32_t>& sms, size_t& turn, Start start, Free free) {
    compared_ += std::ssize(sms) - 1;
    size_t best = turn % sms.size();
    double begins = start(sms[best]), is_free = free(sms[best]);
    for (size_t k = 1, i = best; k < sms.size(); ++k) {
      i = i + 1 < sms.size() ? i + 1 : 0;
      const double late = start(sms[i]) - begins;
      if (late >= kSame || (late >= -kSame && free(sms[i]) >= is_free - kSame)) continue;
      best = i, begins = start(sms[i]), is_free = free(sms[i]);
    }
    turn = best + 1;
    return sms[best];
  }
  void put(size_t t, int32_t sm, double at) {
    ir::Task& task = p_.tasks[t];
    task.sm = sm;
    const double end = at + all_.demands[t].microseconds;
    busy_.end(task.ranks, sm, end);
    readiness_.end(ir::id_of<ir::TaskId>(t), end);
  }
  void place(size_t t) {
    const Readiness::Ready ready = readiness_.of(ir::id_of<ir::TaskId>(t));
    const Times& free_at = busy_.free_at(p_.tasks[t].ranks);
    const int32_t sm = first_of(
        all_.sms[home(t)], turn_[home(t)], [&](int32_t s) { return start(free_at, ready, s); },
        [&](int32_t s) { return free_at[static_cast<size_t>(s)]; });
    put(t, sm, start(free_at, ready, sm));
  }
  void place_mates(size_t t) {
    const Readiness::Ready ready[] = {readiness_.of(ir::id_of<ir::TaskId>(t)),
                                      readiness_.of(ir::id_of<ir::TaskId>(t + 1))};
    const Times& free_at = busy_.free_at(p_.tasks[t].ranks);
    const Times& mate_free_at = busy_.free_at(p_.tasks[t + 1].ranks);
    const auto both = [&](int32_t s) {
      return std::max(start(free_at, ready[0], s), start(mate_free_at, ready[1], s + 1));
    };
    const int32_t sm = first_of(neighbours_[home(t)], mates_turn_[home(t)], both, [&](int32_t s) {
      const auto at = static_cast<size_t>(s);
      return std::max(free_at[at], free_at[at + 1]);
    });
    const double at = both(sm);
    for (size_t i = 0; i < 2; ++i) {
      p_.tasks[t + i].mated = true;
      put(t + i, sm + static_cast<int32_t>(i), at);
    }
  }

  ir::Program& p_;
  const Homes& all_;
  Busy busy_;
  Readiness readiness_;
  int64_t compared_ = 0;
  std::vector<size_t> turn_, mates_turn_;  // by home
  const std::vector<std::vector<int32_t>> neighbours_;
};

// Puts tasks of functions that follow right behind the one that they depend on alone.
void join_followers(ir::Program& program) {
  const auto follows = [&](const ir::Task& task) {
    const functions::Function* function = functions::find_function(program[task.call]);
    return function && function->follows;
  };
  if (std::none_of(program.tasks.begin(), program.tasks.end(), follows)) return;
  const Dependencies found = find_dependencies(program);
  std::map<ir::TaskId, std::vector<size_t>> behind;
  std::vector<bool> moves(program.tasks.size(), false);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    if (!follows(program.tasks[t])) continue;
    const std::span<const uint32_t> sets = found.of(ir::id_of<ir::TaskId>(t));
    if (sets.size() != 1 || found.sets[sets[0]].size() != 1) continue;
    const ir::TaskId leader = found.sets[sets[0]].front();
    const ir::Task &ahead = program[leader], &task = program.tasks[t];
    if (needs_mate(program, ahead) || follows(ahead) || ahead.ranks != task.ranks ||
        ahead.priority != task.priority ||
        std::any_of(task.waits.begin(), task.waits.end(), [&](const ir::Wait& w) {
          return program[w.event].kind != ir::EventKind::Hint;
        }))
      continue;
    behind[leader].push_back(t);
    moves[t] = true;
  }
  if (behind.empty()) return;
  std::vector<ir::Task> tasks;
  tasks.reserve(program.tasks.size());
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    if (moves[t]) continue;
    tasks.push_back(program.tasks[t]);
    if (const auto at = behind.find(ir::id_of<ir::TaskId>(t)); at != behind.end())
      for (const size_t follower : at->second) tasks.push_back(program.tasks[follower]);
  }
  MACO_CHECK(tasks.size() == program.tasks.size(), "a task got lost");
  program.tasks = std::move(tasks);
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
  std::vector<std::string_view> taken_back_by;  // by call; empty: it hands nothing over
  for (const ir::Call& call : program.calls) {
    const functions::Function* f = functions::find_function(call);
    taken_back_by.push_back(f ? std::string_view(f->taken_back_by) : std::string_view());
  }
  std::vector<ir::Task> tasks;
  std::vector<bool> moved(program.tasks.size(), false);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    if (moved[t]) continue;
    tasks.push_back(program.tasks[t]);
    const std::string_view function = taken_back_by[index(program.tasks[t].call)];
    if (function.empty()) continue;
    // Its own is the next of the op that runs on the same ranks.
    for (size_t u = t + 1; u < program.tasks.size(); ++u) {
      const ir::Task& back = program.tasks[u];
      if (moved[u] || program[back.call].function != function ||
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

// Whether a task of one rank waits for a task of another rank that the list has later. Then ranks
// keep the order of the list, in which they don't wait for each other for ever.
bool passes_on(const ir::Program& program) {
  std::vector<size_t> last(program.events.size(), 0);  // the last task that signals it
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Signal& s : program.tasks[t].signals) last[index(s.event)] = t;
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Wait& w : program.tasks[t].waits)
      if (w.lag == 0 && last[index(w.event)] > t) return true;
  return false;
}

}  // namespace

bool schedule(ir::Program& program, PassContext& context) {
  const auto differ = [](const ir::Task& a, const ir::Task& b) { return a.priority != b.priority; };
  const bool in_order = std::adjacent_find(program.tasks.begin(), program.tasks.end(), differ) ==
                            program.tasks.end() ||
                        passes_on(program);
  if (in_order) join_followers(program);
  Homes all;
  if (!all.find(program, context)) return false;
  if (!check_mates(program, all, in_order, context)) return false;
  for (ir::Task& task : program.tasks) task.mated = false;
  if (in_order) {
    InOrder placing(program, all, context.machine);
    placing.run();
    context.statistics["SMs compared by schedule"] = placing.compared();
    context.statistics["searches by schedule"] = placing.searches();
  } else {
    place_by_priority(program, all);
  }
  if (all.hands_over) join_hand_overs(program);
  std::vector<int32_t> length(static_cast<size_t>(program.ctas), 0);
  for (ir::Task& task : program.tasks) task.place = length[static_cast<size_t>(task.sm)]++;
  program.stage = ir::Stage::Scheduled;
  return true;
}

}  // namespace maco::passes
