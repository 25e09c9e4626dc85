// A counter gets `count` signals a launch on every rank; a task that a rank leaves out signals
// there, too. A Peer or Packet event has flags of its own for each rank that signals it: a wait for
// a rank needs exactly one signal from it a launch.
#include "compiler/verify/counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace maco::verify {
namespace {

using ir::EventKind;
using ir::id_of;
using ir::TaskId;

bool overlap_rows(const ir::Program& p, const ir::Region& a, int rank_a, const ir::Region& b,
                  int rank_b) {
  // Packets are read and written with the pitch of their buffer.
  if (a.buffer != b.buffer) return false;
  const ir::Interval shift_a = shift_of(p, a, rank_a), shift_b = shift_of(p, b, rank_b);
  return std::max(a.r0 + shift_a.lo, b.r0 + shift_b.lo) <
             std::min(a.r1 + shift_a.hi, b.r1 + shift_b.hi) &&
         std::max(a.c0, b.c0) < std::min(a.c1, b.c1);
}

class Counts {
 public:
  Counts(const Model& model, Reporter& reporter)
      : m_(model), p_(model.program), report_(reporter) {}

  void run() {
    for (size_t e = 0; e < p_.events.size(); ++e) {
      if (is_counter(p_.events[e].kind)) {
        local(id_of<ir::EventId>(e));
      } else {
        across(id_of<ir::EventId>(e));
      }
    }
    for (size_t t = 0; t < p_.tasks.size(); ++t) told_by_packets(id_of<TaskId>(t));
    packets_once();
  }

 private:
  void local(ir::EventId e) {
    const ir::Event& event = p_[e];
    const size_t signals = m_.signallers[index(e)].size();
    const auto waiters = m_.waiters[index(e)];
    // A wait for an event that counts to 0 orders nothing, which nobody can mean.
    if (signals == event.count && (signals > 0 || waiters.size() == 0)) return;
    const std::string end =
        waiters.size() == 0
            ? ""
            : fmt::format(": {} would {}", describe(p_, id_of<TaskId>(waiters.begin()->task)),
                          signals < event.count ? "never start" : "start too early");
    const std::string what =
        fmt::format("count: event '{}' counts to {} a launch, but {} signals arrive{}", event.name,
                    event.count, signals, end);
    if (waiters.size() > 0 ? report_.error(id_of<TaskId>(waiters.begin()->task), what)
                           : report_.error(what))
      for (const Model::Signaller& s : m_.signallers[index(e)])
        report_.note(id_of<TaskId>(s.task),
                     fmt::format("{} signals it", describe(p_, id_of<TaskId>(s.task))));
  }

  void across(ir::EventId e) {
    const auto world = static_cast<size_t>(m_.world);
    arrivals_.assign(world * world, 0);
    for (const Model::Signaller& s : m_.signallers[index(e)])
      for (int source = 0; source < m_.world; ++source)
        if (m_.runs(s.task, source))
          for (int to : resolve(s.to, source, m_.world))
            ++arrivals_[static_cast<size_t>(source) * world + static_cast<size_t>(to)];
    for (const Model::Waiter& w : m_.waiters[index(e)])
      for (int rank = 0; rank < m_.world; ++rank) {
        if (!m_.runs(w.task, rank)) continue;
        bool wrong = false;
        for (int source : resolve(w.from, rank, m_.world))
          wrong =
              wrong ||
              !arrives(e, w, rank, source,
                       arrivals_[static_cast<size_t>(source) * world + static_cast<size_t>(rank)]);
        if (wrong) break;  // one rank is enough: others are mostly wrong in the same way
      }
    for (const Model::Signaller& s : m_.signallers[index(e)]) waited_for(e, s);
  }

  // A task that sends packets gives them flags only if it signals a packet event to where it sends
  // them; without flags, a task that polls would wait for ever.
  void told_by_packets(TaskId task) {
    for (const ir::Access& a : p_[task].accesses) {
      const ir::Buffer& buffer = p_[a.region.buffer];
      if (!a.writes() || !buffer.packets || buffer.own_packets()) continue;
      for (int rank = 0; rank < m_.followed; ++rank) {
        if (!m_.runs(static_cast<uint32_t>(index(task)), rank)) continue;
        for (int to : resolve(a.region.where, rank, m_.world)) {
          bool told = false;
          for (const ir::Signal& s : p_[task].signals)
            told =
                told || (p_[s.event].kind == EventKind::Packet && names(s.to, rank, to, m_.world));
          if (told) continue;
          report_.error(task, fmt::format("count: {} on rank {} sends packets of '{}' to rank {}, "
                                          "but signals no packet event there",
                                          describe(p_, task), rank, p_[a.region.buffer].name, to));
          return;
        }
      }
    }
  }

  // Packets of a slot have one flag in a launch: a task that polls those of a second write would
  // take the packets of the first for them.
  struct Put {
    TaskId task;
    const ir::Region* region;
  };
  void packets_once() {
    std::map<ir::BufferId, std::vector<Put>> puts;
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Access& a : p_.tasks[t].accesses)
        if (a.writes() && p_[a.region.buffer].packets && !p_[a.region.buffer].own_packets())
          puts[a.region.buffer].push_back({id_of<TaskId>(t), &a.region});
    for (auto& [slot, list] : puts) {
      std::stable_sort(list.begin(), list.end(),
                       [](const Put& a, const Put& b) { return a.region->c0 < b.region->c0; });
      int64_t widest = 0;
      for (const Put& x : list) widest = std::max(widest, x.region->c1 - x.region->c0);
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = i; j < list.size() && list[j].region->c0 < list[i].region->c0 + widest; ++j)
          if (meet(list[i], list[j])) break;
    }
  }
  bool meet(const Put& x, const Put& y) {
    for (int a = 0; a < m_.followed; ++a)
      for (int b = x.region == y.region ? a + 1 : 0; b < m_.world; ++b) {
        if (!m_.runs(static_cast<uint32_t>(index(x.task)), a) ||
            !m_.runs(static_cast<uint32_t>(index(y.task)), b) ||
            !overlap_rows(p_, *x.region, a, *y.region, b))
          continue;
        for (int memory = 0; memory < m_.world; ++memory) {
          if (!names(x.region->where, a, memory, m_.world) ||
              !names(y.region->where, b, memory, m_.world))
            continue;
          if (report_.error(
                  y.task,
                  fmt::format("count: {} of rank {} and {} of rank {} write the same packets of "
                              "'{}' on rank {}: a reader can't tell which of the two it gets",
                              describe(p_, x.task), a, describe(p_, y.task), b,
                              p_[x.region->buffer].name, memory)))
            report_.note(x.task, fmt::format("{} writes them first", describe(p_, x.task)));
          return true;
        }
      }
    return false;
  }

  // A signal to another rank where no task waits for it orders nothing. It was meant to order
  // something: a barrier, or that a slot is written again.
  void waited_for(ir::EventId e, const Model::Signaller& s) {
    const auto task = id_of<TaskId>(s.task);
    for (int source = 0; source < m_.world; ++source) {
      if (!m_.runs(s.task, source)) continue;
      for (int to : resolve(s.to, source, m_.world)) {
        bool waited = false;
        for (const Model::Waiter& w : m_.waiters[index(e)])
          waited = waited || (m_.runs(w.task, to) && names(w.from, to, source, m_.world));
        if (waited) continue;
        report_.error(task, fmt::format("count: {} on rank {} signals event '{}' to rank {}, where "
                                        "nobody waits for it",
                                        describe(p_, task), source, p_[e].name, to));
        return;
      }
    }
  }

  bool arrives(ir::EventId e, const Model::Waiter& w, int rank, int source, int signals) {
    const auto task = id_of<TaskId>(w.task);
    if (signals == 0) {
      report_.error(task, fmt::format("count: {} on rank {} waits for event '{}' from rank {}, "
                                      "which never signals it there",
                                      describe(p_, task), rank, p_[e].name, source));
      return false;
    }
    if (signals > 1) {
      if (report_.error(task, fmt::format("count: {} on rank {} waits for event '{}' from rank {}, "
                                          "which signals it {} times a launch; the first would do",
                                          describe(p_, task), rank, p_[e].name, source, signals)))
        for (const Model::Signaller& s : m_.signallers[index(e)])
          if (m_.runs(s.task, source) && names(s.to, source, rank, m_.world))
            report_.note(id_of<TaskId>(s.task),
                         fmt::format("{} signals it", describe(p_, id_of<TaskId>(s.task))));
      return false;
    }
    return p_[e].kind != EventKind::Packet || packets_meet(e, task, rank, source);
  }

  // Whether the waiting task reads packets, and so polls flags, that the signalling task writes.
  bool packets_meet(ir::EventId e, TaskId reader, int rank, int source) {
    const auto writer = id_of<TaskId>(m_.signaller(e, source, rank));
    for (const ir::Access& write : p_[writer].accesses) {
      if (!write.writes() || !p_[write.region.buffer].packets ||
          !names(write.region.where, source, rank, m_.world))
        continue;
      for (const ir::Access& read : p_[reader].accesses)
        if (!read.writes() && overlap_rows(p_, write.region, source, read.region, rank))
          return true;
    }
    if (report_.error(reader, fmt::format("count: {} on rank {} waits for packets of event '{}', "
                                          "but reads none that {} of rank {} writes there",
                                          describe(p_, reader), rank, p_[e].name,
                                          describe(p_, writer), source)))
      report_.note(writer, fmt::format("{} signals it", describe(p_, writer)));
    return false;
  }

  const Model& m_;
  const ir::Program& p_;
  Reporter& report_;
  std::vector<int> arrivals_;  // of an event: signals, by source and destination
};

}  // namespace

void check_counts(const Model& model, Reporter& reporter) {
  Counts(model, reporter).run();
  reporter.summarise("wrong counts");
}

}  // namespace maco::verify
