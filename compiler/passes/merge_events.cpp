#include "compiler/passes/merge_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace maco::passes {

namespace {

using ir::EventId;
using ir::TaskId;

// By event: the tasks that wait for it; empty if the event can't be merged.
std::vector<std::vector<TaskId>> waiters_of_events(const ir::Program& p) {
  std::vector<std::vector<TaskId>> waiters(p.events.size());
  std::vector<bool> plain;
  for (const ir::Event& e : p.events) plain.push_back(e.kind == ir::EventKind::Local);
  for (size_t t = 0; t < p.tasks.size(); ++t) {
    for (const ir::Wait& w : p.tasks[t].waits)
      if (w == ir::Wait{w.event, ir::RankRef::self(), 0, false})
        waiters[index(w.event)].push_back(ir::id_of<TaskId>(t));
      else
        plain[index(w.event)] = false;
    for (const ir::Signal& s : p.tasks[t].signals)
      if (!(s == ir::Signal{s.event, ir::RankRef::self(), false})) plain[index(s.event)] = false;
  }
  for (size_t e = 0; e < p.events.size(); ++e)
    if (!plain[e]) waiters[e].clear();
  return waiters;
}

std::string merged_name(const ir::Program& p, const std::vector<EventId>& events) {
  if (events.size() == 2) return fmt::format("{} and {}", p[events[0]].name, p[events[1]].name);
  return fmt::format("{} and {} more", p[events[0]].name, events.size() - 1);
}

// Keeps one of several waits or signals for the same event.
template <class Use>
void rename(std::vector<Use>& uses, const std::vector<EventId>& renamed) {
  auto end = uses.begin();
  for (Use use : uses) {
    use.event = renamed[index(use.event)];
    if (std::find(uses.begin(), end, use) == end) *end++ = use;
  }
  uses.erase(end, uses.end());
}

}  // namespace

void merge_events(ir::Program& p) {
  const std::vector<std::vector<TaskId>> waiters = waiters_of_events(p);
  // Grouped by first waiter, so that few lists are compared.
  std::map<std::tuple<TaskId, size_t, ir::Scope>, std::vector<std::vector<EventId>>> alike;
  for (size_t e = 0; e < p.events.size(); ++e) {
    if (waiters[e].empty()) continue;
    auto& groups = alike[{waiters[e].front(), waiters[e].size(), p.events[e].reach()}];
    const auto same = [&](const std::vector<EventId>& group) {
      return waiters[index(group[0])] == waiters[e];
    };
    const auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end())
      groups.push_back({ir::id_of<EventId>(e)});
    else
      group->push_back(ir::id_of<EventId>(e));
  }
  std::vector<EventId> first;  // by event: the first event of its group
  for (size_t e = 0; e < p.events.size(); ++e) first.push_back(ir::id_of<EventId>(e));
  for (const auto& [key, groups] : alike)
    for (const std::vector<EventId>& group : groups) {
      if (group.size() == 1) continue;
      p[group[0]].name = merged_name(p, group);
      for (EventId e : group) first[index(e)] = group[0];
    }
  std::vector<EventId> renamed(p.events.size());
  std::vector<ir::Event> kept;
  for (size_t e = 0; e < p.events.size(); ++e)
    if (index(first[e]) == e) {
      renamed[e] = ir::id_of<EventId>(kept.size());
      kept.push_back(p.events[e]);
    }
  std::vector<bool> merged(kept.size(), false);
  for (size_t e = 0; e < p.events.size(); ++e)
    if (index(first[e]) != e) {
      renamed[e] = renamed[index(first[e])];
      merged[index(renamed[e])] = true;
    }
  p.events = std::move(kept);
  for (size_t e = 0; e < p.events.size(); ++e)
    if (merged[e]) p.events[e].count = 0;
  for (ir::Task& t : p.tasks) {
    rename(t.waits, renamed);
    rename(t.signals, renamed);
    for (const ir::Signal& s : t.signals) p[s.event].count += merged[index(s.event)];
  }
}

}  // namespace maco::passes
