// Deadlock: every CTA is resident, so a task starts when those before it in its stream have ended
// and its waits are over; one that has a mate when both can. It hangs only if these have a cycle,
// over all ranks. Where ranks do the same, rank 0 stands for all: a cycle among all ranks becomes
// one there, and one there, followed rank after rank, closes after at most `world` rounds.
#include "compiler/verify/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>

namespace maco::verify {
namespace {

using ir::EventKind;
using ir::id_of;
using ir::TaskId;

class Order {
 public:
  Order(const Model& model, Reporter& reporter)
      : m_(model), p_(model.program), report_(reporter), mates_(ir::find_mates(p_)) {}

  std::optional<std::vector<Node>> run() {
    const size_t nodes = m_.tasks() * static_cast<size_t>(m_.followed);
    blocked_.assign(nodes, 0);
    gates_.assign(p_.events.size() * static_cast<size_t>(m_.followed), 0);
    for (int r = 0; r < m_.followed; ++r) {
      for (size_t e = 0; e < p_.events.size(); ++e)
        gates_[gate(e, r)] = static_cast<uint32_t>(m_.signallers[e].size());
      for (uint32_t t = 0; t < m_.tasks(); ++t) blocked_[node(t, r)] = blockers(t, r);
      for (uint32_t t = 0; t < m_.tasks(); ++t)
        if (!stuck({t, r})) ready_.push(key(t, r));
    }
    std::vector<Node> order;
    order.reserve(nodes);
    while (!ready_.empty()) {
      const uint64_t top = ready_.top();
      ready_.pop();
      const Node n{static_cast<uint32_t>(top >> 8), static_cast<int32_t>(top & 255)};
      order.push_back(n);
      ended(n);
    }
    if (order.size() == nodes) return order;
    report_cycle(nodes - order.size());
    return std::nullopt;
  }

 private:
  static uint64_t key(uint32_t task, int rank) {
    return uint64_t{task} << 8 | static_cast<uint64_t>(rank);
  }
  size_t node(uint32_t task, int rank) const {
    return static_cast<size_t>(rank) * m_.tasks() + task;
  }
  size_t gate(size_t event, int rank) const {
    return static_cast<size_t>(rank) * p_.events.size() + event;
  }
  int place(uint32_t task) const { return p_.tasks[task].place; }

  uint32_t blockers(uint32_t t, int rank) const {
    uint32_t n = place(t) > 0 ? 1 : 0;
    if (!m_.runs(t, rank)) return n;
    for (const ir::Wait& w : p_.tasks[t].waits) {
      if (w.lag > 0) continue;
      n += is_counter(m_.event(w.event).kind)
               ? 1
               : static_cast<uint32_t>(resolve(w.from, rank, m_.world).size());
    }
    return n;
  }

  void release(uint32_t task, int rank) {
    if (--blocked_[node(task, rank)] > 0 || stuck({task, rank})) return;
    ready_.push(key(task, rank));
    if (mates_[task]) ready_.push(key(static_cast<uint32_t>(index(*mates_[task])), rank));
  }

  void ended(Node n) {
    const std::vector<uint32_t>& stream = m_.streams[m_.stream_of[n.task]];
    const auto next = static_cast<size_t>(place(n.task)) + 1;
    if (next < stream.size()) release(stream[next], n.rank);
    for (const ir::Signal& s : p_.tasks[n.task].signals) {
      const auto waiters = m_.waiters[index(s.event)];
      if (is_counter(m_.event(s.event).kind)) {
        if (--gates_[gate(index(s.event), n.rank)] > 0) continue;
        for (const Model::Waiter& w : waiters)
          if (w.lag == 0 && m_.runs(w.task, n.rank)) release(w.task, n.rank);
        continue;
      }
      if (!m_.runs(n.task, n.rank)) continue;
      for (int to : resolve(s.to, n.rank, m_.world))
        for (const Model::Waiter& w : waiters)
          if (w.lag == 0 && m_.runs(w.task, to) && names(w.from, to, n.rank, m_.world))
            release(w.task, m_.symmetric ? 0 : to);
    }
  }

  // --- the witness ---

  struct Step {
    Node from;               // did not start
    Node because_of;         // did not end
    const ir::Event* event;  // for which `from` waits; nullptr: it stands behind `because_of`
    bool mate = false;       // `from` starts together with `because_of`, its mate
  };

  bool blocked(uint32_t task, int rank) const {
    return blocked_[node(task, m_.symmetric ? 0 : rank)] > 0;
  }
  bool stuck(Node n) const {
    return blocked(n.task, n.rank) ||
           (mates_[n.task] && blocked(static_cast<uint32_t>(index(*mates_[n.task])), n.rank));
  }

  /// What keeps a stuck node from starting: its stream, or else its first wait that isn't over.
  Step step(Node n) const {
    if (place(n.task) > 0) {
      const Node before{m_.streams[m_.stream_of[n.task]][static_cast<size_t>(place(n.task)) - 1],
                        n.rank};
      if (stuck(before)) return {n, before, nullptr};
    }
    for (const ir::Wait& w : p_.tasks[n.task].waits) {
      if (w.lag > 0) continue;
      const ir::Event& event = m_.event(w.event);
      for (int source : resolve(w.from, n.rank, m_.world))
        for (const Model::Signaller& s : m_.signallers[index(w.event)]) {
          if (!is_counter(event.kind) &&
              !(m_.runs(s.task, source) && names(s.to, source, n.rank, m_.world)))
            continue;
          if (const Node signaller{s.task, source}; stuck(signaller)) return {n, signaller, &event};
        }
    }
    if (mates_[n.task])
      return {n, {static_cast<uint32_t>(index(*mates_[n.task])), n.rank}, nullptr, true};
    return {n, n, nullptr};
  }

  void report_cycle(size_t stuck_nodes) {
    Node n;
    while (!stuck(n)) {
      if (++n.task == m_.tasks()) n = {0, n.rank + 1};
    }
    std::vector<Step> walk;
    std::map<std::pair<uint32_t, int32_t>, size_t> seen;
    while (seen.emplace(std::pair{n.task, n.rank}, walk.size()).second) {
      walk.push_back(step(n));
      n = walk.back().because_of;
    }
    walk.erase(walk.begin(), walk.begin() + static_cast<std::ptrdiff_t>(seen[{n.task, n.rank}]));
    // Begin where something is waited for, so that a run of tasks of one stream is told at once.
    const auto wait =
        std::find_if(walk.begin(), walk.end(), [](const Step& s) { return s.event || s.mate; });
    if (wait != walk.end()) std::rotate(walk.begin(), wait, walk.end());

    const std::string others =
        stuck_nodes > 1 ? fmt::format(", and {} tasks never start", stuck_nodes) : "";
    if (!report_.error(task(walk[0].from),
                       fmt::format("deadlock: {} waits for a task that comes after it{}",
                                   text(walk[0].from), others)))
      return;
    Witness witness{.claim = Witness::Claim::Deadlock};
    for (const Step& s : walk) witness.stuck.push_back({s.from.task, s.from.rank, 0});
    report_.witness(std::move(witness));
    for (size_t i = 0; i < walk.size(); ++i) {
      if (walk[i].event) {
        report_.note(task(walk[i].from),
                     fmt::format("{} waits for event '{}' of {}", text(walk[i].from),
                                 walk[i].event->name, text(walk[i].because_of)));
        continue;
      }
      const Node first = walk[i].from;
      if (walk[i].mate) {
        report_.note(task(first), fmt::format("{} starts together with its mate, {}", text(first),
                                              text(walk[i].because_of)));
        continue;
      }
      while (i + 1 < walk.size() && !walk[i + 1].event && !walk[i + 1].mate) ++i;
      report_.note(task(first),
                   fmt::format("{} stands behind {} in the stream of CTA {}", text(first),
                               text(walk[i].because_of), p_.tasks[first.task].sm));
    }
  }
  static TaskId task(Node n) { return id_of<TaskId>(n.task); }
  std::string text(Node n) const {
    return describe(p_, task(n)) + (m_.world > 1 ? fmt::format(" (rank {})", n.rank) : "");
  }

  const Model& m_;
  const ir::Program& p_;
  Reporter& report_;
  const std::vector<std::optional<TaskId>> mates_;
  std::vector<uint32_t> blocked_;  // by node: what has to end before it starts
  std::vector<uint32_t> gates_;    // by Local event and rank: signals that are missing
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> ready_;
};

}  // namespace

std::optional<std::vector<uint32_t>> common_order(const Model& model) {
  const ir::Program& p = model.program;
  const auto tasks = static_cast<uint32_t>(model.tasks());
  std::vector<uint32_t> order(tasks);
  std::iota(order.begin(), order.end(), 0u);
  std::vector<uint32_t> last(p.events.size(), 0);  // the last task that signals it
  for (uint32_t t : order)
    for (const ir::Signal& s : p.tasks[t].signals) last[index(s.event)] = t;
  std::vector<uint32_t> mates(tasks);  // itself where there is none
  std::iota(mates.begin(), mates.end(), 0u);
  const std::vector<std::optional<TaskId>> found = ir::find_mates(p);
  for (uint32_t t = 0; t < tasks; ++t)
    if (found[t]) mates[t] = static_cast<uint32_t>(index(*found[t]));
  // Mates start together: what either waits for comes before both.
  bool listed = true;
  for (uint32_t t = 0; t < tasks && listed; ++t) {
    const std::vector<uint32_t>& stream = model.streams[model.stream_of[t]];
    const auto place = static_cast<size_t>(p.tasks[t].place);
    const uint32_t first = std::min(t, mates[t]);
    listed = place == 0 || stream[place - 1] < first;
    for (const ir::Wait& w : p.tasks[t].waits)
      listed = listed && (w.lag > 0 || last[index(w.event)] < first);
  }
  if (listed) return order;

  std::vector<uint32_t> blocked(tasks, 0), signals(p.events.size());
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (size_t e = 0; e < signals.size(); ++e)
    signals[e] = static_cast<uint32_t>(model.signallers[e].size());
  for (uint32_t t = 0; t < tasks; ++t) {
    blocked[t] = p.tasks[t].place > 0 ? 1 : 0;
    for (const ir::Wait& w : p.tasks[t].waits) blocked[t] += w.lag == 0 ? 1 : 0;
  }
  for (uint32_t t = 0; t < tasks; ++t)
    if (blocked[t] == 0 && blocked[mates[t]] == 0) ready.push(t);
  order.clear();
  const auto release = [&](uint32_t t) {
    if (--blocked[t] > 0 || blocked[mates[t]] > 0) return;
    ready.push(t);
    if (mates[t] != t) ready.push(mates[t]);
  };
  while (!ready.empty()) {
    const uint32_t t = ready.top();
    ready.pop();
    order.push_back(t);
    const std::vector<uint32_t>& stream = model.streams[model.stream_of[t]];
    const auto next = static_cast<size_t>(p.tasks[t].place) + 1;
    if (next < stream.size()) release(stream[next]);
    for (const ir::Signal& s : p.tasks[t].signals)
      if (--signals[index(s.event)] == 0)
        for (const Model::Waiter& w : model.waiters[index(s.event)])
          if (w.lag == 0) release(w.task);
  }
  if (order.size() < tasks) return std::nullopt;
  return order;
}

std::optional<std::vector<Node>> topological_order(
    const Model& model, const std::optional<std::vector<uint32_t>>& common, Reporter& reporter) {
  if (!common || !std::is_sorted(common->begin(), common->end()))
    return Order(model, reporter).run();
  std::vector<Node> order;
  order.reserve(common->size() * static_cast<size_t>(model.followed));
  for (const uint32_t t : *common)
    for (int32_t r = 0; r < model.followed; ++r) order.push_back({t, r});
  return order;
}

}  // namespace maco::verify
