#include "compiler/passes/rank_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "compiler/ops/op.h"
#include "ir/check.h"

namespace maco::passes {

using ir::OpId;

namespace {
constexpr size_t kMostNotes = 16;
}  // namespace

RankOrder::RankOrder(const ir::Graph& graph, const ops::Messages& messages,
                     const std::vector<std::vector<size_t>>& before)
    : g_(graph), messages_(messages), before_(before), world_(static_cast<int>(graph.world)) {}

bool RankOrder::is_message(size_t op) const {
  return ops::find_op(g_.ops[op].kind)->message != ops::MessageEnd::None;
}
bool RankOrder::receives(size_t op) const {
  return ops::find_op(g_.ops[op].kind)->message == ops::MessageEnd::Receive;
}
std::string RankOrder::describe(Node n) const {
  return fmt::format("{} '{}' on rank {}", g_.ops[n.op].kind, g_.ops[n.op].name, n.rank);
}

// The other ranks, if all ranks execute the op together.
std::vector<int> RankOrder::heard_of(Node n) const {
  std::vector<int> ranks;
  if (is_message(n.op) || !ops::find_op(g_.ops[n.op].kind)->collective) return ranks;
  for (int r = 0; r < world_; ++r)
    if (r != n.rank) ranks.push_back(r);
  return ranks;
}

std::vector<RankOrder::Node> RankOrder::waits_of(Node n) const {
  std::vector<Node> nodes;
  for (const size_t b : before_[n.op]) nodes.push_back({b, n.rank});
  if (receives(n.op))
    for (const ops::Message* m : messages_.of_op(ir::id_of<OpId>(n.op)))
      if (m->receivers >> n.rank & 1)
        nodes.push_back({index(m->send), (n.rank - static_cast<int>(m->shift) + world_) % world_});
  for (const int r : heard_of(n))
    for (const size_t b : before_[n.op]) nodes.push_back({b, r});
  return nodes;
}

// Reports a cycle in which each op waits for the next. Begins with a receive, the usual cause.
void RankOrder::report(std::vector<Node> cycle, ir::Diagnostics& diagnostics) const {
  std::rotate(cycle.begin(),
              std::find_if(cycle.begin(), cycle.end(), [&](Node n) { return receives(n.op); }),
              cycle.end());
  diagnostics.error(
      g_.ops[cycle[0].op].loc,
      fmt::format("{} can never run: what it waits for waits for it", describe(cycle[0])));
  for (size_t i = 0; i < std::min(cycle.size(), kMostNotes); ++i)
    diagnostics.note(g_.ops[cycle[i].op].loc, fmt::format("{} waits for {}", describe(cycle[i]),
                                                          describe(cycle[(i + 1) % cycle.size()])));
}

bool RankOrder::every_op_runs(ir::Diagnostics& diagnostics) const {
  const size_t world = static_cast<size_t>(world_), ops = g_.ops.size();
  const auto at = [&](Node n) { return n.op * world + static_cast<size_t>(n.rank); };
  enum : uint8_t { kFresh, kOpen, kDone };
  std::vector<uint8_t> state(ops * world, kFresh);
  struct Visit {
    Node node;
    std::vector<Node> waits;
    size_t next = 0;
  };
  std::vector<Visit> path;
  const auto enter = [&](Node n) {
    state[at(n)] = kOpen;
    path.push_back({n, waits_of(n)});
  };
  for (size_t op = 0; op < ops; ++op)
    for (int rank = 0; rank < world_; ++rank) {
      if (state[at({op, rank})] != kFresh) continue;
      for (enter({op, rank}); !path.empty();) {
        Visit& v = path.back();
        if (v.next == v.waits.size()) {
          state[at(v.node)] = kDone;
          path.pop_back();
          continue;
        }
        const Node next = v.waits[v.next++];
        if (state[at(next)] == kFresh) {
          enter(next);
        } else if (state[at(next)] == kOpen) {
          std::vector<Node> cycle = {next};
          for (size_t i = path.size(); at(path[--i].node) != at(next);)
            cycle.push_back(path[i].node);
          std::reverse(cycle.begin() + 1, cycle.end());
          report(std::move(cycle), diagnostics);
          return false;
        }
      }
    }
  return true;
}

// Ops that wait for each other in a circle if every receive has to come after its sends (Tarjan's
// algorithm). One member names each circle.
std::vector<size_t> RankOrder::circles() const {
  const size_t n = g_.ops.size();
  std::vector<std::vector<size_t>> before = before_;
  for (const ops::Message& m : messages_.all()) before[index(m.recv)].push_back(index(m.send));
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> number(n, kNone), low(n, 0), circle(n, kNone), open, next(n, 0), path;
  size_t count = 0;
  for (size_t root = 0; root < n; ++root) {
    if (number[root] != kNone) continue;
    for (path.push_back(root); !path.empty();) {
      const size_t v = path.back();
      if (number[v] == kNone) {
        number[v] = low[v] = count++;
        open.push_back(v);
      }
      if (next[v] < before[v].size()) {
        const size_t w = before[v][next[v]++];
        if (number[w] == kNone)
          path.push_back(w);
        else if (circle[w] == kNone)
          low[v] = std::min(low[v], number[w]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[v]);
      if (low[v] != number[v]) continue;
      for (size_t w = kNone; w != v;) {
        w = open.back();
        open.pop_back();
        circle[w] = v;
      }
    }
  }
  return circle;
}

std::vector<OpId> RankOrder::linear() const {
  const size_t n = g_.ops.size();
  const std::vector<size_t> circle = circles();
  std::vector<std::vector<size_t>> members(n);
  for (size_t i = 0; i < n; ++i) members[circle[i]].push_back(i);

  // What a rank sends to itself comes first in any case. Within a circle, a send comes first if no
  // path leads to it from its receive.
  std::vector<std::vector<size_t>> before = before_;
  for (const ops::Message& m : messages_.all())
    if (m.shift == 0) before[index(m.recv)].push_back(index(m.send));
  std::vector<size_t> seen(n, SIZE_MAX), open;
  for (size_t k = 0; k < messages_.all().size(); ++k) {
    const size_t send = index(messages_.all()[k].send), recv = index(messages_.all()[k].recv);
    if (circle[send] == circle[recv]) {
      for (open.assign(1, send); !open.empty() && seen[recv] != k;) {
        const size_t v = open.back();
        open.pop_back();
        for (const size_t w : before[v])
          if (circle[w] == circle[send] && seen[w] != k) {
            seen[w] = k;
            open.push_back(w);
          }
      }
      open.clear();
      if (seen[recv] == k) continue;
    }
    before[recv].push_back(send);
  }

  // A circle starts when everything is ready that its ops need from outside; its ops follow one
  // another.
  using Key = std::pair<int, size_t>;  // higher priority first, then definition order
  const auto key = [&](size_t i) { return Key{-static_cast<int>(g_.ops[i].priority), i}; };
  const auto key_of = [&](size_t c) {
    Key least = key(members[c][0]);
    for (const size_t i : members[c]) least = std::min(least, key(i));
    return least;
  };
  std::vector<std::vector<size_t>> after(n);
  std::vector<size_t> missing(n, 0), inside(n, 0);  // by circle; by op, within its circle
  for (size_t i = 0; i < n; ++i)
    for (const size_t b : before[i]) {
      after[b].push_back(i);
      ++(circle[b] == circle[i] ? inside[i] : missing[circle[i]]);
    }
  std::vector<OpId> order;
  std::set<std::pair<Key, size_t>> ready;  // circles
  for (size_t c = 0; c < n; ++c)
    if (!members[c].empty() && missing[c] == 0) ready.emplace(key_of(c), c);
  while (!ready.empty()) {
    const size_t c = ready.begin()->second;
    ready.erase(ready.begin());
    std::set<size_t> next;
    for (const size_t i : members[c])
      if (inside[i] == 0) next.insert(i);
    while (!next.empty()) {
      const size_t i = *next.begin();
      next.erase(next.begin());
      order.push_back(ir::id_of<OpId>(i));
      for (const size_t a : after[i])
        if (circle[a] == c && --inside[a] == 0) next.insert(a);
    }
    for (const size_t i : members[c])
      for (const size_t a : after[i])
        if (circle[a] != c && --missing[circle[a]] == 0)
          ready.emplace(key_of(circle[a]), circle[a]);
  }
  MACO_CHECK(order.size() == n, "ops wait for each other on one rank");
  return order;
}

bool RankOrder::every_op_runs_in(const std::vector<OpId>& linear,
                                 ir::Diagnostics& diagnostics) const {
  std::vector<size_t> place(linear.size());
  for (size_t i = 0; i < linear.size(); ++i) place[index(linear[i])] = i;
  std::vector<size_t> reached(static_cast<size_t>(world_), 0);  // by rank: how many ops have ended
  const auto others = [&](Node n) {
    std::vector<Node> nodes;
    for (const int r : heard_of(n)) nodes.push_back({n.op, r});
    for (const Node other : waits_of(n))
      if (other.rank != n.rank && receives(n.op)) nodes.push_back(other);
    return nodes;
  };
  // A collective on another rank needs only to have begun; a send has to have ended.
  const auto blocking = [&](Node n) -> std::optional<Node> {
    for (const Node other : others(n))
      if (reached[static_cast<size_t>(other.rank)] < place[other.op] + (other.op == n.op ? 0 : 1))
        return other;
    return std::nullopt;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < world_; ++rank)
      for (size_t& at = reached[static_cast<size_t>(rank)];
           at < linear.size() && !blocking({index(linear[at]), rank}); ++at)
        moved = true;
  }
  for (int rank = 0; rank < world_; ++rank) {
    const size_t at = reached[static_cast<size_t>(rank)];
    if (at == linear.size()) continue;
    const Node stuck{index(linear[at]), rank};
    diagnostics.error(g_.ops[stuck.op].loc,
                      fmt::format("{} would never end: all ranks run the ops in one order, but "
                                  "need these in different orders",
                                  describe(stuck)));
    for (int r = 0; r < world_; ++r)
      if (const size_t a = reached[static_cast<size_t>(r)]; a < linear.size()) {
        const Node n{index(linear[a]), r};
        diagnostics.note(g_.ops[n.op].loc,
                         fmt::format("{} waits for {}", describe(n), describe(*blocking(n))));
      }
    return false;
  }
  return true;
}

}  // namespace maco::passes
