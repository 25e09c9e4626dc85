#include "compiler/passes/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "compiler/ops/attrs.h"

namespace maco::passes {

namespace {

using ir::OpId;

class Builder {
 public:
  explicit Builder(const ir::Graph& graph)
      : g_(graph), n_(graph.ops.size()), data_(n_), whole_(n_) {}

  bool build(OpOrder& order, ir::Diagnostics& diagnostics) {
    add_data();
    add_after();
    add_phases();
    add_regions();
    add_overlap();
    return linearise(order, diagnostics);
  }

 private:
  ir::Overlap overlap(size_t i) const { return g_.ops[i].overlap.value_or(g_.overlap); }
  void whole(size_t first, size_t then) {
    if (first != then) whole_[then].insert(first);
  }

  // Definition order gives value semantics: reads after writes, and writes after reads and writes,
  // of each tensor.
  void add_data() {
    std::vector<std::vector<size_t>> readers(g_.tensors.size());
    std::vector<std::vector<size_t>> writers(g_.tensors.size());
    const auto edge = [&](size_t from, size_t to) {
      if (from == to) return;
      data_[to].insert(from);
      if (overlap(from) == ir::Overlap::Conservative || overlap(to) == ir::Overlap::Conservative)
        whole(from, to);
    };
    for (size_t i = 0; i < n_; ++i) {
      for (ir::TensorId t : g_.ops[i].in) {
        for (size_t w : writers[index(t)]) edge(w, i);
        readers[index(t)].push_back(i);
      }
      for (ir::TensorId t : g_.ops[i].out) {
        for (size_t w : writers[index(t)]) edge(w, i);
        for (size_t r : readers[index(t)]) edge(r, i);
        writers[index(t)].push_back(i);
      }
    }
  }

  void add_after() {
    for (size_t i = 0; i < n_; ++i)
      for (const std::string& name : g_.ops[i].after)
        if (auto op = g_.find_op(name)) whole(index(*op), i);
  }

  void add_phases() {
    std::map<std::string, std::vector<size_t>> members;
    for (size_t i = 0; i < n_; ++i)
      if (g_.ops[i].phase) members[*g_.ops[i].phase].push_back(i);
    std::map<std::string, const ir::Phase*> phases;
    for (const ir::Phase& p : g_.phases) phases[p.name] = &p;
    // Also through phases that have no ops. The frontend has refused cycles.
    for (const ir::Phase& p : g_.phases) {
      std::set<std::string> seen;
      std::vector<std::string> open(p.depends_on.begin(), p.depends_on.end());
      while (!open.empty()) {
        const std::string before = std::move(open.back());
        open.pop_back();
        if (!seen.insert(before).second) continue;
        for (size_t a : members[before])
          for (size_t b : members[p.name]) whole(a, b);
        if (const auto at = phases.find(before); at != phases.end())
          open.insert(open.end(), at->second->depends_on.begin(), at->second->depends_on.end());
      }
    }
  }

  void add_regions() {
    for (const ir::OverlapRegion& r : g_.overlap_regions) {
      std::set<size_t> members;
      for (const std::string& name : r.ops)
        if (auto op = g_.find_op(name)) members.insert(index(*op));
      if (members.empty()) continue;
      for (size_t i = *members.rbegin() + 1; i < n_; ++i)
        for (size_t m : members) whole(m, i);
    }
  }

  // Members of one region may run together whatever their `overlap` is.
  bool same_region(size_t a, size_t b) const {
    const auto holds = [&](const ir::OverlapRegion& r, size_t op) {
      return std::find(r.ops.begin(), r.ops.end(), g_.ops[op].name) != r.ops.end();
    };
    return std::any_of(g_.overlap_regions.begin(), g_.overlap_regions.end(),
                       [&](const ir::OverlapRegion& r) { return holds(r, a) && holds(r, b); });
  }

  void add_overlap() {
    for (size_t c = 0; c < n_; ++c) {
      if (!ops::is_collective(g_.ops[c])) continue;
      const bool alone = overlap(c) == ir::Overlap::None || g_.ops[c].kind == "barrier";
      for (size_t i = 0; i < n_; ++i) {
        if (i == c) continue;
        const bool apart = g_.ops[c].overlap_group && g_.ops[i].overlap_group &&
                           *g_.ops[c].overlap_group != *g_.ops[i].overlap_group;
        if ((alone && !same_region(c, i)) || apart) i < c ? whole(i, c) : whole(c, i);
      }
    }
  }

  bool linearise(OpOrder& order, ir::Diagnostics& diagnostics) {
    std::vector<std::set<size_t>> next(n_);
    std::vector<size_t> missing(n_, 0);
    for (size_t i = 0; i < n_; ++i) {
      std::set<size_t> all = data_[i];
      all.insert(whole_[i].begin(), whole_[i].end());
      missing[i] = all.size();
      for (size_t p : all) next[p].insert(i);
    }
    using Key = std::pair<int, size_t>;  // higher priority first, then definition order
    std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
    const auto push = [&](size_t i) { ready.push({-static_cast<int>(g_.ops[i].priority), i}); };
    for (size_t i = 0; i < n_; ++i)
      if (missing[i] == 0) push(i);
    while (!ready.empty()) {
      const size_t i = ready.top().second;
      ready.pop();
      order.linear.push_back(ir::id_of<OpId>(i));
      for (size_t s : next[i])
        if (--missing[s] == 0) push(s);
    }
    if (order.linear.size() != n_) {
      for (size_t i = 0; i < n_; ++i)
        if (missing[i] > 0) {
          diagnostics.error(g_.ops[i].loc, fmt::format("the order asked of '{}' and its neighbours "
                                                       "has a cycle: overlap settings, groups, "
                                                       "'after' and phases contradict each other",
                                                       g_.ops[i].name));
          break;
        }
      return false;
    }
    reduce(order);
    return true;
  }

  // Drops from each list what is implied by another member's own list.
  void reduce(OpOrder& order) const {
    std::vector<size_t> place(n_);
    for (size_t k = 0; k < n_; ++k) place[index(order.linear[k])] = k;
    const size_t words = (n_ + 63) / 64;
    std::vector<std::vector<uint64_t>> before(n_, std::vector<uint64_t>());
    order.whole.assign(n_, {});
    for (OpId op : order.linear) {
      const size_t i = index(op);
      if (whole_[i].empty()) continue;
      std::vector<size_t> list(whole_[i].begin(), whole_[i].end());
      std::sort(list.begin(), list.end(), [&](size_t a, size_t b) { return place[a] > place[b]; });
      std::vector<uint64_t> seen(words, 0);
      for (size_t p : list) {
        if (seen[p / 64] >> (p % 64) & 1) continue;
        order.whole[i].push_back(ir::id_of<OpId>(p));
        seen[p / 64] |= uint64_t{1} << (p % 64);
        for (size_t w = 0; w < before[p].size(); ++w) seen[w] |= before[p][w];
      }
      before[i] = std::move(seen);
      std::reverse(order.whole[i].begin(), order.whole[i].end());
    }
  }

  const ir::Graph& g_;
  size_t n_;
  std::vector<std::set<size_t>> data_, whole_;
};

}  // namespace

bool order_ops(const ir::Graph& graph, OpOrder& order, ir::Diagnostics& diagnostics) {
  return Builder(graph).build(order, diagnostics);
}

}  // namespace maco::passes
