// order.cpp: checks that data, `after`, phases, regions and barriers together form no cycle.
//
// The graph of "waits for" has a node for each op, and helper nodes that keep it linear in size. A
// phase is a start node and an end node. An op that waits for all earlier ops stands behind a chain
// `before[k]` (ops 0 to k have ended). An op for which all later ops wait stands before a chain
// `behind[k]` (ops k and later may start). Only `after` and phases point backwards; without them
// there is nothing to check.

#include "compiler/graph/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/ops/op.h"

namespace maco::graph {

namespace {

enum class Why : uint8_t { Chain, Read, Overwrite, Rewrite, After, Phase, Region, Barrier };

struct Edge {
  size_t to = 0;
  Why why = Why::Chain;
  size_t detail = 0;  // tensor, entry of `after`, phase or region
};

class OrderGraph {
 public:
  OrderGraph(const ir::Graph& graph, Report& report)
      : g_(graph), report_(report), ops_(graph.ops.size()) {
    edges_.resize(ops_);
    for (size_t i = 0; i < ops_; ++i) op_of_.emplace(g_.ops[i].name, i);
    data();
    after();
    phases();
    behind_and_before();
  }

  void report_cycles() {
    for (const std::vector<size_t>& component : components()) report(component);
  }

 private:
  size_t node() {
    edges_.emplace_back();
    return edges_.size() - 1;
  }
  /// Adds an edge: `to` waits for `from`.
  void edge(size_t from, size_t to, Why why, size_t detail = 0) {
    edges_[from].push_back({to, why, detail});
  }

  void data() {
    std::vector<int64_t> writer(g_.tensors.size(), -1);
    std::vector<std::vector<size_t>> readers(g_.tensors.size());
    for (size_t i = 0; i < ops_; ++i) {
      const ir::Op& op = g_.ops[i];
      for (ir::TensorId id : op.in) {
        const size_t t = index(id);
        if (writer[t] >= 0) edge(static_cast<size_t>(writer[t]), i, Why::Read, t);
        readers[t].push_back(i);
      }
      for (ir::TensorId id : op.out) {
        const size_t t = index(id);
        for (size_t r : readers[t])
          if (r != i) edge(r, i, Why::Overwrite, t);
        if (writer[t] >= 0) edge(static_cast<size_t>(writer[t]), i, Why::Rewrite, t);
        readers[t].clear();
        writer[t] = static_cast<int64_t>(i);
      }
    }
  }

  void after() {
    for (size_t i = 0; i < ops_; ++i) {
      const std::vector<std::string>& names = g_.ops[i].after;
      for (size_t k = 0; k < names.size(); ++k)
        if (auto it = op_of_.find(names[k]); it != op_of_.end()) edge(it->second, i, Why::After, k);
    }
  }

  void phases() {
    const std::vector<ir::Phase>& phases = g_.phases;
    std::map<std::string_view, size_t> index_of;
    std::vector<size_t> begin, end;
    for (const ir::Phase& p : phases) {
      index_of.emplace(p.name, begin.size());
      begin.push_back(node());
      end.push_back(node());
    }
    for (size_t p = 0; p < phases.size(); ++p)
      for (const std::string& other : phases[p].depends_on)
        if (auto it = index_of.find(other); it != index_of.end())
          edge(end[it->second], begin[p], Why::Phase, it->second);
    for (size_t i = 0; i < ops_; ++i) {
      if (!g_.ops[i].phase) continue;
      const auto it = index_of.find(*g_.ops[i].phase);
      if (it == index_of.end()) continue;
      edge(begin[it->second], i, Why::Chain);
      edge(i, end[it->second], Why::Chain);
    }
  }

  /// Whether the op waits for all earlier ops and all later ops wait for it.
  bool is_barrier(const ir::Op& op) const {
    const ops::OpDef* def = ops::find_op(op.kind);
    return def != nullptr && (def->barrier || (def->collective && op.overlap.value_or(g_.overlap) ==
                                                                      ir::Overlap::None));
  }

  void behind_and_before() {
    std::vector<size_t> barriers;
    for (size_t i = 0; i < ops_; ++i)
      if (is_barrier(g_.ops[i])) barriers.push_back(i);
    if (barriers.empty() && g_.overlap_regions.empty()) return;
    const size_t behind = edges_.size(), before = behind + ops_ + 1;
    edges_.resize(before + ops_);
    for (size_t k = 0; k < ops_; ++k) {
      edge(behind + k, k, Why::Chain);
      edge(behind + k, behind + k + 1, Why::Chain);
      edge(k, before + k, Why::Chain);
      if (k + 1 < ops_) edge(before + k, before + k + 1, Why::Chain);
    }
    for (size_t b : barriers) {
      if (b > 0) edge(before + b - 1, b, Why::Barrier, b);
      edge(b, behind + b + 1, Why::Barrier, b);
    }
    for (size_t r = 0; r < g_.overlap_regions.size(); ++r) {
      size_t last = 0;
      std::vector<size_t> members;
      for (const std::string& name : g_.overlap_regions[r].ops) {
        const auto it = op_of_.find(name);
        if (it == op_of_.end()) continue;
        members.push_back(it->second);
        last = std::max(last, it->second);
      }
      for (size_t m : members) edge(m, behind + last + 1, Why::Region, r);
    }
  }

  /// The strongly connected components with a cycle (Tarjan's algorithm, without recursion).
  std::vector<std::vector<size_t>> components() const {
    const size_t n = edges_.size();
    std::vector<int64_t> order(n, -1), low(n, 0);
    std::vector<bool> open(n, false);
    std::vector<size_t> stack;
    std::vector<std::pair<size_t, size_t>> calls;  // node, next edge
    std::vector<std::vector<size_t>> result;
    int64_t counter = 0;
    for (size_t root = 0; root < n; ++root) {
      if (order[root] >= 0) continue;
      calls.emplace_back(root, 0);
      while (!calls.empty()) {
        const size_t v = calls.back().first;
        if (calls.back().second == 0) {
          order[v] = low[v] = counter++;
          stack.push_back(v);
          open[v] = true;
        }
        if (calls.back().second < edges_[v].size()) {
          const size_t w = edges_[v][calls.back().second++].to;
          if (order[w] < 0)
            calls.emplace_back(w, 0);
          else if (open[w])
            low[v] = std::min(low[v], order[w]);
          continue;
        }
        calls.pop_back();
        if (!calls.empty()) low[calls.back().first] = std::min(low[calls.back().first], low[v]);
        if (low[v] != order[v]) continue;
        std::vector<size_t> component;
        size_t w = 0;
        do {
          w = stack.back();
          stack.pop_back();
          open[w] = false;
          component.push_back(w);
        } while (w != v);
        const bool loops = std::any_of(edges_[v].begin(), edges_[v].end(),
                                       [&](const Edge& e) { return e.to == v; });
        if (component.size() > 1 || loops) result.push_back(std::move(component));
      }
    }
    return result;
  }

  struct Step {
    size_t from = 0;
    Edge edge;
  };

  /// The shortest way from `start` back to itself inside `component`.
  std::vector<Step> cycle(size_t start, const std::vector<bool>& inside) const {
    std::vector<Step> reached_by(edges_.size());
    std::vector<bool> seen(edges_.size(), false);
    std::deque<size_t> queue = {start};
    while (!queue.empty()) {
      const size_t v = queue.front();
      queue.pop_front();
      for (const Edge& e : edges_[v]) {
        if (!inside[e.to] || seen[e.to]) continue;
        seen[e.to] = true;
        reached_by[e.to] = {v, e};
        queue.push_back(e.to);
      }
      if (seen[start]) break;
    }
    std::vector<Step> steps;
    for (size_t v = start; steps.empty() || v != start; v = steps.back().from)
      steps.push_back(reached_by[v]);
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  ir::Loc after_loc(size_t op, size_t entry) const {
    const ir::Op& o = g_.ops[op];
    return entry < o.after_loc.size() ? o.after_loc[entry] : o.loc;
  }
  ir::Loc phase_loc(size_t op) const {
    return g_.ops[op].phase_loc.known() ? g_.ops[op].phase_loc : g_.ops[op].loc;
  }
  const std::string& op_name(size_t i) const { return g_.ops[i].name; }

  /// One line of the explanation: op `to` waits for op `from`.
  void explain(size_t from, size_t to, const Edge& e) {
    const ir::Op& op = g_.ops[to];
    const auto tensor = [&] { return g_.tensors[e.detail].name; };
    std::string text = fmt::format("'{}' ", op.name);
    ir::Loc loc = op.loc;
    switch (e.why) {
      case Why::Read:
        text += fmt::format("reads '{}', which '{}' writes", tensor(), op_name(from));
        break;
      case Why::Overwrite:
        text += fmt::format("writes '{}', which '{}' reads before", tensor(), op_name(from));
        break;
      case Why::Rewrite:
        text += fmt::format("writes '{}', which '{}' writes before", tensor(), op_name(from));
        break;
      case Why::After:
        text += fmt::format("is after '{}'", op_name(from));
        loc = after_loc(to, e.detail);
        break;
      case Why::Phase:
        text += fmt::format("is in phase '{}', which depends on phase '{}' of '{}'", *op.phase,
                            g_.phases[e.detail].name, op_name(from));
        loc = phase_loc(to);
        break;
      case Why::Region:
        text += fmt::format("is defined after overlap region '{}', of which '{}' is a member",
                            g_.overlap_regions[e.detail].name, op_name(from));
        break;
      case Why::Barrier: {
        const std::string_view kind = ops::find_op(g_.ops[e.detail].kind)->barrier
                                          ? "a barrier"
                                          : "a collective with overlap 'none'";
        text += e.detail == to ? fmt::format("is {} and waits for all earlier ops, '{}' among them",
                                             kind, op_name(from))
                               : fmt::format("is defined after '{}', {}", op_name(from), kind);
        break;
      }
      case Why::Chain: text += fmt::format("waits for '{}'", op_name(from)); break;
    }
    report_.note(loc, text);
  }

  void report(const std::vector<size_t>& component) {
    std::vector<bool> inside(edges_.size(), false);
    size_t start = edges_.size();
    for (size_t v : component) {
      inside[v] = true;
      if (v < ops_) start = std::min(start, v);
    }
    if (start == edges_.size()) return;  // empty phases only
    // Helper nodes lie between two ops; the edge that says why is the one that isn't a link of a
    // chain.
    struct Wait {
      size_t from, to;
      Edge edge;
    };
    std::vector<Wait> waits;
    Wait current{start, start, {}};
    for (const Step& s : cycle(start, inside)) {
      if (s.edge.why != Why::Chain) current.edge = s.edge;
      if (s.edge.to >= ops_) continue;
      current.to = s.edge.to;
      waits.push_back(current);
      current = {s.edge.to, s.edge.to, {}};
    }
    // The culprit is the edge that points backwards: an `after` or a phase.
    ir::Loc loc = g_.ops[start].loc;
    for (const Wait& w : waits) {
      if (w.to > w.from) continue;
      if (w.edge.why == Why::After)
        loc = after_loc(w.to, w.edge.detail);
      else if (w.edge.why == Why::Phase)
        loc = phase_loc(w.to);
      break;
    }
    constexpr size_t kShown = 16;
    std::string names;
    for (size_t i = 0; i < waits.size() && i < kShown; ++i)
      names += fmt::format("'{}' -> ", op_name(waits[i].from));
    names += waits.size() > kShown ? "..." : fmt::format("'{}'", op_name(start));
    const bool alone = waits.size() == 1;
    if (!report_.error(loc, alone ? fmt::format("op '{}' waits for itself", op_name(start))
                                  : fmt::format("these ops wait for each other: {}", names)))
      return;
    for (size_t i = 0; i < waits.size() && i < kShown; ++i)
      explain(waits[i].from, waits[i].to, waits[i].edge);
  }

  const ir::Graph& g_;
  Report& report_;
  size_t ops_;
  std::unordered_map<std::string_view, size_t> op_of_;
  std::vector<std::vector<Edge>> edges_;
};

/// Reports phases that depend on each other. If each of them has ops, the ops' cycle was reported
/// already. A phase without ops orders nothing, but such a request makes no sense.
void check_phases(const ir::Graph& graph, Report& report) {
  const std::vector<ir::Phase>& phases = graph.phases;
  std::map<std::string_view, size_t> index_of;
  for (size_t p = 0; p < phases.size(); ++p) index_of.emplace(phases[p].name, p);
  std::vector<bool> has_ops(phases.size(), false);
  for (const ir::Op& op : graph.ops)
    if (op.phase)
      if (auto it = index_of.find(*op.phase); it != index_of.end()) has_ops[it->second] = true;

  // The way down from a phase along depends_on, without recursion. A phase is done when everything
  // below it has been visited.
  enum class Seen : uint8_t { No, OnTheWay, Done };
  std::vector<Seen> seen(phases.size(), Seen::No);
  for (size_t root = 0; root < phases.size(); ++root) {
    std::vector<std::pair<size_t, size_t>> way;  // phase, next entry of its depends_on
    if (seen[root] == Seen::No) way.emplace_back(root, 0);
    while (!way.empty()) {
      const size_t p = way.back().first;
      seen[p] = Seen::OnTheWay;
      if (way.back().second == phases[p].depends_on.size()) {
        seen[p] = Seen::Done;
        way.pop_back();
        continue;
      }
      const auto it = index_of.find(phases[p].depends_on[way.back().second++]);
      if (it == index_of.end() || seen[it->second] == Seen::Done) continue;
      if (seen[it->second] == Seen::No) {
        way.emplace_back(it->second, 0);
        continue;
      }
      auto first =
          std::find_if(way.begin(), way.end(), [&](auto& w) { return w.first == it->second; });
      bool reported = true;
      std::string names;
      for (auto w = first; w != way.end(); ++w) {
        reported = reported && has_ops[w->first];
        names += fmt::format("'{}' -> ", phases[w->first].name);
      }
      const ir::Phase& start = phases[it->second];
      if (reported) continue;
      report.error(start.loc, way.end() - first == 1
                                  ? fmt::format("phase '{}' depends on itself", start.name)
                                  : fmt::format("these phases depend on each other: {}'{}'", names,
                                                start.name));
    }
  }
}

}  // namespace

void check_order(const ir::Graph& graph, Report& report) {
  const bool backwards =
      !graph.phases.empty() || std::any_of(graph.ops.begin(), graph.ops.end(),
                                           [](const ir::Op& op) { return !op.after.empty(); });
  if (backwards) OrderGraph(graph, report).report_cycles();
  check_phases(graph, report);
}

}  // namespace maco::graph
