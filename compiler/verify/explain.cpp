#include "compiler/verify/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "compiler/verify/report.h"
#include "compiler/verify/structure.h"

namespace maco::verify {
namespace {

using Edge = Precedence::Edge;
using Packets = Precedence::Packets;
using Why = Precedence::Why;

constexpr size_t kCandidates = 8;

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}
std::optional<int32_t> number(std::string_view s) {
  int32_t n = 0;
  const auto [end, status] = std::from_chars(s.data(), s.data() + s.size(), n);
  if (status != std::errc() || end != s.data() + s.size() || n < 0) return std::nullopt;
  return n;
}

// Takes "@1", "+2" or "(rank 1, launch 2)" off the end.
void take_suffixes(std::string_view& name, std::optional<int32_t>& rank,
                   std::optional<int32_t>& launch) {
  if (name.ends_with(')')) {
    const size_t open = name.rfind('(');
    if (open == std::string_view::npos) return;
    std::string_view inside = name.substr(open + 1, name.size() - open - 2);
    std::optional<int32_t> r, l;
    while (!inside.empty()) {
      const size_t comma = std::min(inside.find(','), inside.size());
      const std::string_view part = trim(inside.substr(0, comma));
      if (part.starts_with("rank ")) {
        r = number(part.substr(5));
      } else if (part.starts_with("launch ")) {
        l = number(part.substr(7));
      } else {
        return;  // part of the name, as "(put)" is
      }
      inside.remove_prefix(std::min(comma + 1, inside.size()));
    }
    rank = r;
    launch = l;
    name = trim(name.substr(0, open));
    return;
  }
  for (;;) {
    const size_t at = name.find_last_of("@+");
    if (at == std::string_view::npos || at == 0) return;
    const auto n = number(name.substr(at + 1));
    std::optional<int32_t>& what = name[at] == '@' ? rank : launch;
    if (!n || what) return;
    what = n;
    name = trim(name.substr(0, at));
  }
}

// What a breadth-first search has met, and by which edge.
struct Met {
  Instance from;
  Edge edge;  // from there to what was met
  size_t steps = 0;
};
using Search = std::map<Instance, Met>;

// From `from` on; ends early at `until`, if given.
template <class Edges>
Search search(Instance from, const Instance* until, const Edges& edges) {
  Search met;
  std::vector<Instance> level = {from};
  met.emplace(from, Met{from, {from, Why::Stream, {}}, 0});
  for (size_t steps = 1; !level.empty(); ++steps) {
    std::vector<Instance> next;
    for (const Instance i : level)
      for (const Edge& e : edges(i))
        if (met.emplace(e.other, Met{i, e, steps}).second) {
          if (until && e.other == *until) return met;
          next.push_back(e.other);
        }
    level = std::move(next);
  }
  return met;
}

std::string label(const ir::Program& p, Instance i) {
  const ir::Task& t = p.tasks[i.task];
  return fmt::format("t{} {}: task {} of CTA {}", i.task, describe(p, i), t.place, t.sm);
}

std::string step(const ir::Program& p, const Edge& e) {
  switch (e.why) {
    case Why::Stream: return "the stream of the CTA goes on";
    case Why::Launch: return "a launch of the rank follows the one before";
    case Why::Packet:
      return fmt::format("packets of event '{}', which show their own data only", p[e.event].name);
    case Why::Hint: return fmt::format("hint '{}', which orders nothing", p[e.event].name);
    case Why::Event: break;
  }
  const ir::Event& event = p[e.event];
  const std::string count =
      event.kind == ir::EventKind::Local
          ? fmt::format(", {} signal{}", event.count, event.count == 1 ? "" : "s")
          : "";
  return fmt::format("{} event '{}'{}", ir::name(event.kind), event.name, count);
}

// What both searches met with the fewest steps of both together. If there are several: the last in
// the list of tasks if `last`, else the first.
std::optional<Instance> nearest(const Search& a, const Search& b, bool last) {
  std::optional<Instance> best;
  size_t least = 0;
  const auto key = [](Instance i) { return std::tuple(i.launch, i.task, -i.rank); };
  for (const auto& [i, met] : a) {
    const auto other = b.find(i);
    if (other == b.end()) continue;
    const size_t steps = met.steps + other->second.steps;
    const bool tie = best && steps == least && (key(i) > key(*best)) == last;
    if (best && steps >= least && !tie) continue;
    best = i;
    least = steps;
  }
  return best;
}

}  // namespace

std::optional<Instance> find_instance(const ir::Program& p, std::string_view text,
                                      std::string& error) {
  std::string_view name = trim(text);
  std::optional<int32_t> rank, launch;
  take_suffixes(name, rank, launch);

  std::vector<uint32_t> found;
  const auto labelled = number(name.starts_with('t') ? name.substr(1) : name);
  if (labelled && static_cast<size_t>(*labelled) < p.tasks.size()) {
    found.push_back(static_cast<uint32_t>(*labelled));
  } else {
    for (uint32_t t = 0; t < p.tasks.size(); ++t) {
      const ir::Call& call = p[p.tasks[t].call];
      const std::string tile = fmt::format(" tile {}", p.tasks[t].tile);
      const std::string function = fmt::format("{} ({})", call.op, ir::function_text(call));
      if (name == call.op || name == call.op + tile || name == function ||
          name == function + tile || name == ir::describe(p, ir::id_of<ir::TaskId>(t)))
        found.push_back(t);
    }
  }
  if (found.empty()) {
    std::vector<std::string> ops;
    for (const ir::Call& c : p.calls) ops.push_back(c.op);
    error = fmt::format("no task is called '{}'{}", name, ir::did_you_mean(name, ops));
    return std::nullopt;
  }
  if (found.size() > 1) {
    error = fmt::format("'{}' may be any of {} tasks:", name, found.size());
    for (size_t i = 0; i < found.size() && i < kCandidates; ++i)
      error +=
          fmt::format("\n  t{} {}", found[i], ir::describe(p, ir::id_of<ir::TaskId>(found[i])));
    if (found.size() > kCandidates) error += "\n  ...";
    return std::nullopt;
  }
  Instance i{found[0], 0, launch.value_or(0)};
  const auto runs = [&](int r) { return (p.tasks[i.task].ranks >> r) & 1; };
  if (rank) {
    i.rank = *rank;
  } else {
    while (i.rank + 1 < p.world && !runs(i.rank)) ++i.rank;
  }
  if (i.rank >= p.world) {
    error = fmt::format("'{}': there is no rank {} of {}", text, i.rank, p.world);
    return std::nullopt;
  }
  if (!runs(i.rank)) {
    error = fmt::format("'{}': t{} doesn't run on rank {}", text, i.task, i.rank);
    return std::nullopt;
  }
  return i;
}

Explanation explain(const ir::Program& p, Instance a, Instance b) {
  const Precedence order(p);
  const auto before = [&](Packets packets) {
    return [&order, packets](Instance i) { return order.before(i, packets); };
  };
  const auto path = [&](Instance from, Instance to) -> std::optional<std::string> {
    for (const Packets packets : {Packets::None, Packets::Sure}) {
      const Search met = search(to, &from, before(packets));
      if (from == to || !met.contains(from)) continue;
      std::string text = fmt::format("{} happens before {}:\n  {}\n", describe(p, from),
                                     describe(p, to), label(p, from));
      for (Instance i = from; i != to;) {
        const Met& m = met.at(i);
        text += fmt::format("    {}\n  {}\n", step(p, m.edge), label(p, m.from));
        i = m.from;
      }
      return text;
    }
    return std::nullopt;
  };
  if (a == b) return {false, fmt::format("{} is one task\n", describe(p, a))};
  if (auto text = path(a, b)) return {true, std::move(*text)};
  if (auto text = path(b, a)) return {false, "the other way round: " + *text};

  std::string text = fmt::format("nothing orders {} and {}: both could run at the same time\n",
                                 describe(p, a), describe(p, b));
  const auto past = nearest(search(a, nullptr, before(Packets::Sure)),
                            search(b, nullptr, before(Packets::Sure)), true);
  if (past) text += fmt::format("  both come after {}\n", label(p, *past));
  // One launch further, so that something comes after tasks of the last one, too.
  const auto after = [&, launches = std::max(a.launch, b.launch) + 2](Instance i) {
    return order.after(i, launches, Packets::Sure);
  };
  const auto next = nearest(search(a, nullptr, after), search(b, nullptr, after), false);
  if (next) text += fmt::format("  both come before {}\n", label(p, *next));
  return {false, text};
}

bool check_explainable(const ir::Program& p, ir::Diagnostics& diagnostics) {
  Reporter reporter(p, diagnostics, VerifyOptions().max_reports);
  check_structure(p, reporter);
  if (reporter.failed()) return false;
  if (p.stage == ir::Stage::Synced) return true;
  diagnostics.error({}, fmt::format("the Program is {}: before 'insert-sync' nothing orders its "
                                    "tasks",
                                    ir::name(p.stage)));
  return false;
}

}  // namespace maco::verify
