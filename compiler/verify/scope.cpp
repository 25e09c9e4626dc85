// A signal and its wait order two tasks only if the signal is a release, the wait an acquire, and
// the scope of each includes the thread at the other end: what happens-before (clocks.h) takes an
// edge to be. A rank is on one GPU, so that gpu scope is enough on a rank; between ranks it takes
// sys.
//
// Packets have neither a release nor an acquire: their flag is in the 8 bytes that it speaks for.
// What they rest on:
//   - the data has flags: counts.cpp, by Buffer::packets;
//   - a packet isn't overwritten before it was read: races.cpp, since the reading task reads its
//     region of the slot;
//   - a flag of another launch is never taken for this one's. The flag is the launch's number e,
//     and the reader takes that number only. What else the copy may hold was written by launches
//     e - k * rotation, which differ from e for 0 < k * rotation < 2^32, or is what the reset left,
//     2^31 away from its first launch: so for the 2^31 launches after a reset, and beyond that
//     wherever a packet is sent at least once in 2^31 launches. That launches take turns with
//     copies across the wrap of their number, too, needs a rotation that divides 2^32:
//     structure.cpp.
//
// Waits compare 32-bit numbers by their difference, which is right while two ranks, or a count and
// its target, are less than 2^31 apart: a lag is at most 64 launches (structure.cpp), a count of a
// launch is the number of signals in the Program's list (counts.cpp). That ranks are no further
// apart is not proved where one only sends and never waits; it would be so after hours only.
#include "compiler/verify/scope.h"

#include <fmt/format.h>

namespace maco::verify {
namespace {

using ir::EventKind;
using ir::id_of;
using ir::TaskId;

class ScopeCheck {
 public:
  ScopeCheck(const Model& model, Reporter& reporter)
      : m_(model), p_(model.program), report_(reporter) {}

  void run() {
    for (size_t e = 0; e < p_.events.size(); ++e)
      if (!is_counter(p_.events[e].kind) && p_.events[e].reach() == ir::Scope::Gpu)
        across(id_of<ir::EventId>(e));
    for (uint32_t t = 0; t < m_.tasks(); ++t) {
      for (const ir::Wait& w : p_.tasks[t].waits)
        if (w.relaxed) relaxed_wait(t, w);
      for (const ir::Signal& s : p_.tasks[t].signals)
        if (s.relaxed) relaxed_signal(t, s);
    }
  }

 private:
  std::string describe(uint32_t task) const { return ir::describe(p_, id_of<TaskId>(task)); }
  std::string describe(uint32_t task, int rank) const {
    return m_.world > 1 ? fmt::format("{} (rank {})", describe(task), rank) : describe(task);
  }
  /// The first rank that runs the task; -1 if none does.
  int first_rank(uint32_t task) const {
    for (int rank = 0; rank < m_.world; ++rank)
      if (m_.runs(task, rank)) return rank;
    return -1;
  }

  // An event that reaches one GPU, between tasks on two.
  void across(ir::EventId e) {
    for (const Model::Waiter& w : m_.waiters[index(e)])
      for (int rank = 0; rank < m_.world; ++rank) {
        if (!m_.runs(w.task, rank)) continue;
        for (int source : resolve(w.from, rank, m_.world)) {
          if (source == rank) continue;
          const uint32_t sender = m_.signaller(e, source, rank);
          report_.error(id_of<TaskId>(w.task),
                        fmt::format("scope: event '{}' reaches one GPU only (scope=gpu), but {} "
                                    "waits for it from {}: {}",
                                    p_[e].name, describe(w.task, rank), describe(sender, source),
                                    harm(sender, source, w.task, rank)));
          return;  // of the other ends the same would be said
        }
      }
  }

  void relaxed_wait(uint32_t task, const ir::Wait& w) {
    const int rank = first_rank(task);
    if (rank < 0) return;  // nobody waits
    const bool local = is_counter(p_[w.event].kind);
    uint32_t sender = ~0u;
    int source = rank;
    if (local) {
      for (const Model::Signaller& s : m_.signallers[index(w.event)])
        if (sender == ~0u ||
            (!shared(sender, rank, task, rank) && shared(s.task, rank, task, rank)))
          sender = s.task;
    } else {
      const ir::Ranks sources = resolve(w.from, rank, m_.world);
      if (!sources.empty()) sender = m_.signaller(w.event, source = sources.front(), rank);
    }
    report_.error(id_of<TaskId>(task),
                  fmt::format("scope: {} waits for event '{}' without an acquire{}", describe(task),
                              p_[w.event].name,
                              sender == ~0u ? "" : ": " + harm(sender, source, task, rank)));
  }

  // A task that a rank leaves out still signals its local events, for the tasks before it.
  void relaxed_signal(uint32_t task, const ir::Signal& s) {
    const bool local = is_counter(p_[s.event].kind);
    int rank = first_rank(task);
    if (rank < 0 && !local) return;
    if (rank < 0) rank = 0;
    uint32_t waiter = ~0u;
    int at = rank;
    const ir::Ranks targets = resolve(local ? ir::RankRef::self() : s.to, rank, m_.world);
    for (const Model::Waiter& w : m_.waiters[index(s.event)])
      for (int to : targets)
        if (m_.runs(w.task, to) && (local || names(w.from, to, rank, m_.world)) &&
            (waiter == ~0u || (!shared(task, rank, waiter, at) && shared(task, rank, w.task, to))))
          waiter = w.task, at = to;
    report_.error(
        id_of<TaskId>(task),
        fmt::format("scope: {} signals event '{}' without a release{}", describe(task),
                    p_[s.event].name, waiter == ~0u ? "" : ": " + harm(task, rank, waiter, at)));
  }

  /// The access of `waiter` to something that `sender` touches too, one of them writing: nullptr if
  /// there is none.
  const ir::Access* shared(uint32_t sender, int source, uint32_t waiter, int rank) const {
    for (const ir::Access& theirs : p_.tasks[waiter].accesses)
      for (const ir::Access& ours : p_.tasks[sender].accesses)
        if (ours.region.buffer == theirs.region.buffer && (ours.writes() || theirs.writes()) &&
            names(ours.region.where, source, rank, m_.world) &&
            names(theirs.region.where, rank, rank, m_.world))
          return &theirs;
    return nullptr;
  }

  /// What may then happen.
  std::string harm(uint32_t sender, int source, uint32_t waiter, int rank) const {
    const ir::Access* access = shared(sender, source, waiter, rank);
    const std::string first = describe(sender, source), second = describe(waiter, rank);
    if (!access) return fmt::format("{} may not see what came before {} ended", second, first);
    const std::string region = to_string(p_, access->region, rank);
    if (!access->writes())
      return fmt::format("{} may read {} as it was before {} wrote there", second, region, first);
    return fmt::format("{} may write {} while {} still uses it", second, region, first);
  }

  const Model& m_;
  const ir::Program& p_;
  Reporter& report_;
};

}  // namespace

void check_scope(const Model& model, Reporter& reporter) {
  ScopeCheck(model, reporter).run();
  reporter.summarise("such errors");
}

}  // namespace maco::verify
