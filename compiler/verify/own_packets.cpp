// A packet shows its own data and nothing else. That it is this launch's follows from its flag:
//   - every packet that is read is written once in each launch, so that before it is written it has
//     the flag of the launch before, or what the reset left, which is another one's, too. Rows
//     don't depend on dims, and nothing else lies there: structure.cpp; that what is read has been
//     written: defined.cpp; that it is written once: here;
//   - its writer signals a hint, without which a kernel sends no flags.
// Who reads packets waits for a hint of each of their writers: with the proof of deadlock, which
// takes hints for edges, they will come. Hints order nothing else: no other proof counts them, and
// nothing but these temporaries is left out there.
#include "compiler/verify/own_packets.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace maco::verify {
namespace {

using ir::EventKind;
using ir::id_of;
using ir::TaskId;

bool overlap(const ir::Region& a, const ir::Region& b) {
  return std::max(a.r0, b.r0) < std::min(a.r1, b.r1) && std::max(a.c0, b.c0) < std::min(a.c1, b.c1);
}

class OwnPackets {
 public:
  OwnPackets(const Model& model, Reporter& reporter)
      : m_(model), p_(model.program), report_(reporter) {}

  void run() {
    std::map<ir::BufferId, Buffer> buffers;
    for (uint32_t t = 0; t < m_.tasks(); ++t)
      for (const ir::Access& a : p_.tasks[t].accesses)
        if (p_[a.region.buffer].own_packets()) {
          Buffer& b = buffers[a.region.buffer];
          (a.writes() ? b.writes : b.reads).push_back({t, &a.region});
        }
    for (auto& [id, buffer] : buffers) {
      written_once(id, buffer.writes);
      find_hints(buffer.writes);
      for (const Touch& read : buffer.reads) sees(id, read, buffer.writes);
    }
  }

 private:
  struct Touch {
    uint32_t task;
    const ir::Region* region;
  };
  struct Buffer {
    std::vector<Touch> writes, reads;
  };
  std::string describe(uint32_t task) const { return ir::describe(p_, id_of<TaskId>(task)); }

  void written_once(ir::BufferId id, std::vector<Touch>& writes) {
    std::stable_sort(writes.begin(), writes.end(),
                     [](const Touch& a, const Touch& b) { return a.region->c0 < b.region->c0; });
    int64_t widest = 0;
    for (const Touch& x : writes) widest = std::max(widest, x.region->c1 - x.region->c0);
    for (size_t i = 0; i < writes.size(); ++i)
      for (size_t j = i + 1;
           j < writes.size() && writes[j].region->c0 < writes[i].region->c0 + widest; ++j) {
        const Touch &x = writes[i], &y = writes[j];
        if (!overlap(*x.region, *y.region) ||
            (p_.tasks[x.task].ranks & p_.tasks[y.task].ranks) == 0)
          continue;
        if (report_.error(id_of<TaskId>(y.task),
                          fmt::format("packets: {} and {} write the same packets of '{}': a reader "
                                      "can't tell which of the two it gets",
                                      describe(x.task), describe(y.task), p_[id].name)))
          report_.note(id_of<TaskId>(x.task), fmt::format("{} writes them, too", describe(x.task)));
        return;
      }
  }

  // How many of these tasks signal each hint, each task once.
  void find_hints(const std::vector<Touch>& writes) {
    hints_.clear();
    for (const Touch& w : writes) {
      bool any = false;
      for (const ir::Signal& s : p_.tasks[w.task].signals) {
        if (p_[s.event].kind != EventKind::Hint) continue;
        any = true;
        ++hints_[s.event];
      }
      if (!any)
        report_.error(id_of<TaskId>(w.task),
                      fmt::format("packets: {} sends packets of '{}', but signals no hint: so the "
                                  "packets get no flags",
                                  describe(w.task), p_[w.region->buffer].name));
    }
  }

  static bool signals(const ir::Task& task, ir::EventId event) {
    return std::any_of(task.signals.begin(), task.signals.end(),
                       [&](const ir::Signal& s) { return s.event == event; });
  }

  void sees(ir::BufferId id, const Touch& read, const std::vector<Touch>& writes) {
    const ir::Task& reader = p_.tasks[read.task];
    const auto counts = [&](const ir::Wait& w) {
      return p_[w.event].kind == EventKind::Hint && w.lag == 0;
    };
    // Mostly it waits for all of the buffer.
    for (const ir::Wait& w : reader.waits)
      if (counts(w) && all_signal(w.event, writes)) return;
    for (const Touch& write : writes) {
      if (!overlap(*read.region, *write.region) || (reader.ranks & p_.tasks[write.task].ranks) == 0)
        continue;
      const bool told = std::any_of(
          reader.waits.begin(), reader.waits.end(),
          [&](const ir::Wait& w) { return counts(w) && signals(p_.tasks[write.task], w.event); });
      if (told) continue;
      if (report_.error(id_of<TaskId>(read.task),
                        fmt::format("packets: {} reads packets of '{}' that {} sends, but waits "
                                    "for no hint of it",
                                    describe(read.task), p_[id].name, describe(write.task))))
        report_.note(id_of<TaskId>(write.task), fmt::format("{} sends them", describe(write.task)));
      return;
    }
  }
  // Each writes once, so that as many signals are of all.
  bool all_signal(ir::EventId event, const std::vector<Touch>& writes) const {
    const auto at = hints_.find(event);
    if (at == hints_.end() || at->second < writes.size()) return false;
    return std::all_of(writes.begin(), writes.end(),
                       [&](const Touch& w) { return signals(p_.tasks[w.task], event); });
  }

  const Model& m_;
  const ir::Program& p_;
  Reporter& report_;
  std::map<ir::EventId, size_t> hints_;  // of the buffer: signals of its writers
};

}  // namespace

void check_own_packets(const Model& model, Reporter& reporter) {
  OwnPackets(model, reporter).run();
  reporter.summarise("such errors");
}

}  // namespace maco::verify
