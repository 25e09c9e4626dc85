#include "compiler/verify/precedence.h"

#include <fmt/format.h>

#include "compiler/verify/model.h"

namespace maco::verify {

using ir::EventKind;

std::string describe(const ir::Program& program, Instance i) {
  std::string where = program.world > 1 ? fmt::format("rank {}", i.rank) : "";
  if (i.launch > 0) where += fmt::format("{}launch {}", where.empty() ? "" : ", ", i.launch);
  const std::string task = ir::describe(program, ir::id_of<ir::TaskId>(i.task));
  return where.empty() ? task : task + " (" + where + ")";
}

Precedence::Precedence(const ir::Program& program)
    : program_(program),
      world_(static_cast<int>(program.world)),
      streams_(ir::streams(program)),
      signallers_(program.events.size()),
      waiters_(program.events.size()),
      may_skip_(program.tasks.size(), false) {
  // The model only says which tasks surely poll. That follows from regions and dims, not from an
  // order.
  const Model model(program, false);
  for (uint32_t t = 0; t < program.tasks.size(); ++t) {
    for (const ir::Signal& s : program.tasks[t].signals)
      signallers_[index(s.event)].push_back({t, s.to});
    for (const ir::Wait& w : program.tasks[t].waits)
      waiters_[index(w.event)].push_back({t, w.from, w.lag});
    may_skip_[t] = !model.surely_polls(t);
  }
}

Precedence::Why Precedence::kind(ir::EventId e) const {
  switch (program_[e].kind) {
    case EventKind::Packet: return Why::Packet;
    case EventKind::Hint: return Why::Hint;
    default: return Why::Event;
  }
}
bool Precedence::counts(ir::EventId e, uint32_t waiter, Packets packets) const {
  if (packets == Packets::All) return true;
  if (program_[e].kind == EventKind::Hint) return packets == Packets::SureAndHints;
  if (program_[e].kind != EventKind::Packet) return true;
  return packets != Packets::None && !may_skip_[waiter];
}
bool Precedence::names(ir::RankRef ref, int rank, int other) const {
  return ir::resolve(ref, rank, world_).contains(other);
}

std::vector<Precedence::Edge> Precedence::before(Instance i, Packets packets) const {
  std::vector<Edge> edges;
  const ir::Task& task = program_.tasks[i.task];
  const auto stream = static_cast<size_t>(task.sm);
  if (task.place > 0) {
    const ir::TaskId last = streams_[stream][static_cast<size_t>(task.place) - 1];
    edges.push_back({{static_cast<uint32_t>(index(last)), i.rank, i.launch}, Why::Stream, {}});
  } else if (i.launch > 0) {
    for (const std::vector<ir::TaskId>& s : streams_)
      if (!s.empty())
        edges.push_back(
            {{static_cast<uint32_t>(index(s.back())), i.rank, i.launch - 1}, Why::Launch, {}});
  }
  if (!runs(i)) return edges;  // it signals Local events, and waits for nothing
  for (const ir::Wait& w : task.waits) {
    const int launch = i.launch - static_cast<int>(w.lag);
    if (launch < 0 || !counts(w.event, i.task, packets)) continue;
    for (const Signaller& s : signallers_[index(w.event)]) {
      if (is_counter(program_[w.event].kind)) {
        edges.push_back({{s.task, i.rank, launch}, kind(w.event), w.event});
        continue;
      }
      for (const int source : ir::resolve(w.from, i.rank, world_))
        if (const Instance from{s.task, source, launch}; runs(from) && names(s.to, source, i.rank))
          edges.push_back({from, kind(w.event), w.event});
    }
  }
  return edges;
}

std::vector<Precedence::Edge> Precedence::after(Instance i, int launches, Packets packets) const {
  std::vector<Edge> edges;
  const ir::Task& task = program_.tasks[i.task];
  const std::vector<ir::TaskId>& stream = streams_[static_cast<size_t>(task.sm)];
  if (static_cast<size_t>(task.place) + 1 < stream.size()) {
    const ir::TaskId next = stream[static_cast<size_t>(task.place) + 1];
    edges.push_back({{static_cast<uint32_t>(index(next)), i.rank, i.launch}, Why::Stream, {}});
  } else if (i.launch + 1 < launches) {
    for (const std::vector<ir::TaskId>& s : streams_)
      if (!s.empty())
        edges.push_back(
            {{static_cast<uint32_t>(index(s.front())), i.rank, i.launch + 1}, Why::Launch, {}});
  }
  for (const ir::Signal& s : task.signals) {
    const EventKind event = program_[s.event].kind;
    const bool counter = is_counter(event);
    if (!counter && !runs(i)) continue;
    for (const Waiter& w : waiters_[index(s.event)]) {
      const int launch = i.launch + static_cast<int>(w.lag);
      if (launch >= launches || !counts(s.event, w.task, packets)) continue;
      for (const int rank : ir::resolve(counter ? ir::RankRef::self() : s.to, i.rank, world_))
        if (const Instance to{w.task, rank, launch};
            runs(to) && (counter || names(w.from, rank, i.rank)))
          edges.push_back({to, kind(s.event), s.event});
    }
  }
  return edges;
}

}  // namespace maco::verify
