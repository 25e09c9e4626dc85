#include "compiler/passes/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <string_view>

#include "compiler/ops/attrs.h"
#include "compiler/passes/rank_order.h"

namespace maco::passes {

namespace {

using ir::OpId;

// Builds OpOrder. An op's list leaves out what its other entries, or their own lists, plainly
// imply, so that lists stay short: 2,000 barriers have 2,000 entries and not two million.
class Builder {
 public:
  Builder(const ir::Graph& graph, const ops::Messages& messages)
      : g_(graph), messages_(messages), n_(graph.ops.size()), data_(n_), whole_(n_) {}

  bool build(OpOrder& order, ir::Diagnostics& diagnostics) {
    add_data();
    add_after();
    add_phases();
    add_regions();
    add_alone();
    add_groups();
    if (messages_.all().empty()) return linearise(order, diagnostics);
    std::vector<std::vector<size_t>> before = data_;
    for (size_t i = 0; i < n_; ++i)
      before[i].insert(before[i].end(), whole_[i].begin(), whole_[i].end());
    const RankOrder ranks(g_, messages_, before);
    if (!ranks.every_op_runs(diagnostics)) return false;
    order.linear = ranks.linear();
    if (!ranks.every_op_runs_in(order.linear, diagnostics)) return false;
    for (std::vector<size_t>& list : whole_) remove_twins(list);
    reduce(order);
    return true;
  }

 private:
  ir::Overlap overlap(size_t i) const { return g_.ops[i].overlap.value_or(g_.overlap); }
  bool conservative(size_t i) const { return overlap(i) == ir::Overlap::Conservative; }
  static void remove_twins(std::vector<size_t>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  void whole(size_t first, size_t then) {
    if (first != then) whole_[then].push_back(first);
  }

  // Definition order gives value semantics, for each tensor: reads come after writes, and writes
  // after reads and writes.
  void add_data() {
    struct Uses {
      std::vector<size_t> readers, writers;  // readers: since the last writer
      // Those since the last conservative writer, which has waited for those before it.
      std::vector<size_t> all_readers, all_writers, conservative_readers;
    };
    std::vector<Uses> uses(g_.tensors.size());
    const auto after_writers = [&](const Uses& u, size_t i) {
      for (size_t w : u.writers) data_[i].push_back(w);
      if (conservative(i))
        for (size_t w : u.all_writers) whole(w, i);
      else if (!u.all_writers.empty() && conservative(u.all_writers.front()))
        whole(u.all_writers.front(), i);
    };
    for (size_t i = 0; i < n_; ++i) {
      for (ir::TensorId t : g_.ops[i].in) {
        Uses& u = uses[index(t)];
        after_writers(u, i);
        u.readers.push_back(i);
        u.all_readers.push_back(i);
        if (conservative(i)) u.conservative_readers.push_back(i);
      }
      for (ir::TensorId t : g_.ops[i].out) {
        Uses& u = uses[index(t)];
        after_writers(u, i);
        for (size_t r : u.readers)
          if (r != i) data_[i].push_back(r);
        for (size_t r : conservative(i) ? u.all_readers : u.conservative_readers) whole(r, i);
        u.readers.clear();
        u.writers = {i};
        if (conservative(i)) u = {{}, {i}, {}, {}, {}};
        u.all_writers.push_back(i);
      }
    }
  }

  void add_after() {
    for (size_t i = 0; i < n_; ++i)
      for (const std::string& name : g_.ops[i].after)
        if (auto op = g_.find_op(name)) whole(index(*op), i);
  }

  void add_phases() {
    const size_t n = g_.phases.size();
    std::map<std::string_view, size_t> numbers;
    for (size_t p = 0; p < n; ++p) numbers.emplace(g_.phases[p].name, p);
    std::vector<std::vector<size_t>> members(n);
    for (size_t i = 0; i < n_; ++i)
      if (g_.ops[i].phase)
        if (const auto it = numbers.find(*g_.ops[i].phase); it != numbers.end())
          members[it->second].push_back(i);
    // Looks through phases without ops; a phase with ops waits for those before it. The frontend
    // has refused cycles.
    std::vector<size_t> seen(n, n);
    for (size_t p = 0; p < n; ++p) {
      if (members[p].empty()) continue;
      std::vector<size_t> open = {p};
      while (!open.empty()) {
        const size_t at = open.back();
        open.pop_back();
        for (const std::string& name : g_.phases[at].depends_on) {
          const auto it = numbers.find(name);
          if (it == numbers.end() || seen[it->second] == p) continue;
          seen[it->second] = p;
          if (members[it->second].empty()) open.push_back(it->second);
          for (size_t a : members[it->second])
            for (size_t b : members[p]) whole(a, b);
        }
      }
    }
  }

  // Ops defined after the last member of a region wait for all members.
  void add_regions() {
    std::multimap<size_t, std::vector<size_t>> regions;  // by the last member
    for (const ir::OverlapRegion& r : g_.overlap_regions) {
      std::set<size_t> members;
      for (const std::string& name : r.ops)
        if (auto op = g_.find_op(name)) members.insert(index(*op));
      if (!members.empty())
        regions.emplace(*members.rbegin(), std::vector<size_t>(members.begin(), members.end()));
    }
    std::vector<std::pair<size_t, std::vector<size_t>>> ended;
    auto next = regions.begin();
    for (size_t i = 0; i < n_; ++i) {
      for (; next != regions.end() && next->first < i; ++next) {
        // A member defined after an earlier region has waited for that region already.
        const size_t latest = next->first;
        std::erase_if(ended, [&](const auto& e) { return e.first < latest; });
        ended.emplace_back(latest, next->second);
      }
      for (const auto& [last, members] : ended)
        for (size_t m : members) whole(m, i);
    }
  }

  // A barrier, and a collective that overlaps with nothing, waits for all earlier ops, and all
  // later ops wait for it. Members of one region may nevertheless run together.
  void add_alone() {
    std::set<std::string_view> named;
    for (const ir::OverlapRegion& r : g_.overlap_regions) named.insert(r.ops.begin(), r.ops.end());
    std::vector<size_t> since;  // the last such op outside of all regions, and the ops behind it
    for (size_t i = 0; i < n_; ++i) {
      const bool alone = ops::runs_alone(g_, g_.ops[i]);
      if (alone && named.count(g_.ops[i].name)) {
        for (size_t k = 0; k < n_; ++k)
          if (k != i && !same_region(i, k)) k < i ? whole(k, i) : whole(i, k);
      } else if (alone) {
        for (size_t k : since) whole(k, i);
        since.clear();
        last_alone_ = i;
      }
      if (last_alone_ && *last_alone_ != i) whole(*last_alone_, i);
      since.push_back(i);
    }
  }
  bool same_region(size_t a, size_t b) const {
    const auto holds = [&](const ir::OverlapRegion& r, size_t op) {
      return std::find(r.ops.begin(), r.ops.end(), g_.ops[op].name) != r.ops.end();
    };
    return std::any_of(g_.overlap_regions.begin(), g_.overlap_regions.end(),
                       [&](const ir::OverlapRegion& r) { return holds(r, a) && holds(r, b); });
  }

  // A collective that names a group doesn't run together with ops of other groups.
  void add_groups() {
    std::vector<size_t> grouped;
    for (size_t i = 0; i < n_; ++i)
      if (g_.ops[i].overlap_group) grouped.push_back(i);
    for (size_t a = 0; a < grouped.size(); ++a)
      for (size_t b = a + 1; b < grouped.size(); ++b)
        if (const ir::Op &x = g_.ops[grouped[a]], &y = g_.ops[grouped[b]];
            *x.overlap_group != *y.overlap_group &&
            (ops::is_collective(x) || ops::is_collective(y)))
          whole(grouped[a], grouped[b]);
  }

  bool linearise(OpOrder& order, ir::Diagnostics& diagnostics) {
    std::vector<std::vector<size_t>> next(n_);
    std::vector<size_t> missing(n_, 0);
    for (size_t i = 0; i < n_; ++i) {
      remove_twins(whole_[i]);
      for (const std::vector<size_t>* list : {&data_[i], &whole_[i]})
        for (size_t p : *list) next[p].push_back(i), ++missing[i];
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
          diagnostics.error(g_.ops[i].loc, fmt::format("the constraints on the order of '{}' and "
                                                       "its neighbours form a cycle: overlap "
                                                       "settings, groups, 'after' and phases "
                                                       "contradict each other",
                                                       g_.ops[i].name));
          break;
        }
      return false;
    }
    reduce(order);
    return true;
  }

  // Drops from each list what another entry's own list implies, as far as a bounded search shows.
  void reduce(OpOrder& order) const {
    std::vector<size_t> place(n_);
    for (size_t k = 0; k < n_; ++k) place[index(order.linear[k])] = k;
    order.whole.assign(n_, {});
    std::vector<size_t> seen(n_, n_);
    std::vector<size_t> open;
    for (OpId op : order.linear) {
      const size_t i = index(op);
      if (whole_[i].empty()) continue;
      std::vector<size_t> list = whole_[i];
      std::sort(list.begin(), list.end(), [&](size_t a, size_t b) { return place[a] > place[b]; });
      size_t steps = 64 * list.size() + 1024;
      for (size_t p : list) {
        if (seen[p] == i) continue;
        order.whole[i].push_back(ir::id_of<OpId>(p));
        for (open.push_back(p); !open.empty();) {
          const size_t at = open.back();
          open.pop_back();
          for (OpId before : order.whole[at]) {
            const size_t b = index(before);
            if (seen[b] == i || place[b] < place[list.back()] || steps == 0) continue;
            --steps;
            seen[b] = i;
            open.push_back(b);
          }
        }
      }
      std::reverse(order.whole[i].begin(), order.whole[i].end());
    }
  }

  const ir::Graph& g_;
  const ops::Messages& messages_;
  size_t n_;
  std::optional<size_t> last_alone_;
  std::vector<std::vector<size_t>> data_, whole_;
};

}  // namespace

bool order_ops(const ir::Graph& graph, const ops::Messages& messages, OpOrder& order,
               ir::Diagnostics& diagnostics) {
  return Builder(graph, messages).build(order, diagnostics);
}

}  // namespace maco::passes
