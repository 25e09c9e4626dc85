#include "compiler/verify/hand_overs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/verify/precedence.h"

namespace maco::verify {
namespace {

using ir::Access;
using ir::id_of;
using ir::Task;
using ir::TaskId;

class HandOvers {
 public:
  HandOvers(const Model& model, Reporter& reporter) : p_(model.program), report_(reporter) {}

  void run() {
    if (std::none_of(p_.buffers.begin(), p_.buffers.end(),
                     [](const ir::Buffer& b) { return b.wire; }))
      return;
    const auto streams = ir::streams(p_);
    int32_t common = -1;
    std::set<size_t> taken;  // tasks behind a hand-over
    for (size_t t = 0; t < p_.tasks.size() && !report_.failed(); ++t) {
      const auto id = id_of<TaskId>(t);
      const Task& task = p_[id];
      if (!hands_over(task)) continue;
      if (common >= 0 && task.sm != common)
        report_.error(id, fmt::format("hand-over: {} runs on CTA {}, others on CTA {}: ranks could "
                                      "hand over to NCCL in different orders",
                                      ir::describe(p_, id), task.sm, common));
      common = task.sm;
      const std::vector<TaskId>& stream = streams[static_cast<size_t>(task.sm)];
      const auto place = static_cast<size_t>(task.place) + 1;
      if (place == stream.size()) {
        report_.error(id, fmt::format("hand-over: no task after {} takes back what it hands over",
                                      ir::describe(p_, id)));
        return;
      }
      taken.insert(index(stream[place]));
      takes_back(id, stream[place]);
    }
    for (size_t t = 0; t < p_.tasks.size() && !report_.failed(); ++t)
      if (receives(p_.tasks[t]) && !taken.count(t))
        report_.error(id_of<TaskId>(t),
                      fmt::format("hand-over: {} takes back what no task before it hands over",
                                  ir::describe(p_, id_of<TaskId>(t))));
  }

 private:
  bool is_wire(const Access& a) const { return p_[a.region.buffer].wire; }
  bool receives(const Task& t) const {
    return std::any_of(t.accesses.begin(), t.accesses.end(),
                       [&](const Access& a) { return is_wire(a) && !a.writes(); });
  }
  bool hands_over(const Task& t) const {
    return std::any_of(t.accesses.begin(), t.accesses.end(),
                       [&](const Access& a) { return is_wire(a) && a.writes(); });
  }

  void takes_back(TaskId first, TaskId second) {
    const Task &hands = p_[first], &takes = p_[second];
    const auto wrong = [&](const std::string& why) {
      report_.error(second, fmt::format("hand-over: {} comes after {}, but {}",
                                        ir::describe(p_, second), ir::describe(p_, first), why));
    };
    if (hands.ranks != takes.ranks) return wrong("runs on other ranks");
    if (p_[hands.call].op != p_[takes.call].op || hands_over(takes))
      return wrong("takes back what another op hands over");
    // What hears of the hand-over by its packets alone, comes after all ranks' hand-overs.
    const bool told =
        std::any_of(hands.signals.begin(), hands.signals.end(),
                    [&](const ir::Signal& g) { return p_[g.event].kind != ir::EventKind::Packet; });
    for (const ir::Wait& w : takes.waits) {
      if (w.lag > 0 || (p_[w.event].kind == ir::EventKind::Packet && !told) ||
          std::find(hands.waits.begin(), hands.waits.end(), w) != hands.waits.end())
        continue;
      if (comes_between(static_cast<uint32_t>(index(first)), static_cast<uint32_t>(index(second)),
                        w))
        return wrong(fmt::format("waits for '{}', which comes between the two", p_[w.event].name));
    }
    for (const Access& a : hands.accesses)
      if (!is_wire(a) && !has(takes, a))
        return wrong(fmt::format("does not {} all of '{}' that is handed over",
                                 a.writes() ? "write" : "read", p_[a.region.buffer].name));
  }

  // Whether a task that signals what the second waits for comes after the first.
  bool comes_between(uint32_t first, uint32_t second, const ir::Wait& wait) {
    if (!before_) before_.emplace(p_);
    const auto world = static_cast<int>(p_.world);
    for (int rank = 0; rank < world; ++rank) {
      std::set<Instance> after = {{first, rank, 0}};
      for (std::vector<Instance> next(after.begin(), after.end()); !next.empty();) {
        const Instance at = next.back();
        next.pop_back();
        for (const Precedence::Edge& edge : before_->after(at, 1, Precedence::Packets::All))
          if (edge.other != Instance{second, rank, 0} && after.insert(edge.other).second)
            next.push_back(edge.other);
      }
      for (const Precedence::Edge& edge :
           before_->before({second, rank, 0}, Precedence::Packets::All))
        if ((edge.why == Precedence::Why::Event || edge.why == Precedence::Why::Packet) &&
            edge.event == wait.event && after.count(edge.other) > 0)
          return true;
    }
    return false;
  }

  // Whether the task touches at least that, in the same way. Blocks of all ranks may be there one
  // by one.
  bool has(const Task& t, const Access& a) const {
    using enum ir::RankRef::Kind;
    const auto same_place = [&](const Access& b) {
      const ir::Region &r = a.region, &s = b.region;
      return b.writes() == a.writes() && r.buffer == s.buffer && r.pitch == s.pitch &&
             r.r0 == s.r0 && r.r1 == s.r1 && r.c0 == s.c0 && r.c1 == s.c1 &&
             r.block.any() == s.block.any() && r.block.rows == s.block.rows &&
             r.block.value == s.block.value && r.from == s.from;
    };
    const auto blocks = [&](ir::RankRef ref) {
      uint64_t mask = 0;
      for (int rank : ir::resolve(ref, 0, static_cast<int>(p_.world))) mask |= uint64_t{1} << rank;
      return mask;
    };
    if (!a.region.block.any()) return std::any_of(t.accesses.begin(), t.accesses.end(), same_place);
    if (a.region.block.ref.kind == Rank)
      return std::any_of(t.accesses.begin(), t.accesses.end(), [&](const Access& b) {
        return same_place(b) && b.region.block.ref == a.region.block.ref;
      });
    // Seen from rank 0; what is said of ranks is relative on both sides.
    uint64_t found = 0;
    for (const Access& b : t.accesses)
      if (same_place(b) && b.region.block.ref.kind != Rank) found |= blocks(b.region.block.ref);
    return (blocks(a.region.block.ref) & ~found) == 0;
  }

  const ir::Program& p_;
  Reporter& report_;
  std::optional<Precedence> before_;  // once it is asked for
};

}  // namespace

void check_hand_overs(const Model& model, Reporter& reporter) { HandOvers(model, reporter).run(); }

}  // namespace maco::verify
