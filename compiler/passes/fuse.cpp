// fuse.cpp: chains of elementwise ops become one op, or the epilogue of the matmul before them.
//
// A group grows from its last op, the sink, towards the ops that make its operands. An op joins if
// its result is a temporary of the group's shape that nothing outside the group reads. Values with
// several readers, and declared ones, stay in memory. The group runs where the sink stood; so no op
// may overwrite a member's operand between the member and the sink, and no barrier may lie there.
// Members share all constraints: an op that a constraint names is never fused with an op that it
// doesn't name. Each step of the group's body rounds to the dtype of the tensor that it replaces,
// so that fusing never changes bits.
//
// A matmul joins as the first member if all other operands of the group are ready before it starts
// anyway (they have no producer, or one on which the matmul itself depends): waiting for more would
// cost more than a trip through memory saves. Two matmuls with the same left operand join together
// if their method takes pairs, so that each task has the same columns of both. Otherwise only the
// later one joins and waits for the other's tiles; its tasks follow the other's anyway.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "compiler/ops/elementwise.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/passes/graph_edit.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

using ir::Body;
using ir::BodyArg;
using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

constexpr size_t kMaxOperands = 6, kMaxSteps = 24;  // what a thread's registers can hold

class Fuser {
 public:
  Fuser(ir::Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        constraints_(graph),
        dead_(graph.ops.size(), false),
        makers_(graph.ops.size()),
        seen_(graph.ops.size(), SIZE_MAX),
        writers_(graph.tensors.size()),
        users_(graph.tensors.size()) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      for (TensorId t : graph.ops[i].in) {
        users_[index(t)].insert(i);
        if (!writers_[index(t)].empty()) makers_[i].push_back(writers_[index(t)].back());
      }
      for (TensorId t : graph.ops[i].out) writers_[index(t)].push_back(i);
      if (is_fence(graph, graph.ops[i])) fences_.push_back(i);
    }
    for (const ir::OverlapRegion& r : graph.overlap_regions) {
      std::set<size_t> members;
      for (const std::string& name : r.ops)
        if (const auto op = graph.find_op(name)) members.insert(index(*op));
      regions_.push_back(std::move(members));
    }
  }

  // Returns how many ops are gone.
  int64_t run() {
    for (size_t sink = graph_.ops.size(); sink-- > 0;)
      if (!dead_[sink] && ops::is_elementwise(graph_.ops[sink].kind)) fuse_into(sink);
    const auto gone = std::count(dead_.begin(), dead_.end(), true);
    erase_ops(graph_, dead_);
    return gone;
  }

 private:
  using Group = std::set<size_t>;

  void fuse_into(size_t sink) {
    Group group = {sink};
    while (grow(group, sink)) {
    }
    std::vector<size_t> matmuls = find_pair(group, sink);
    if (matmuls.empty())
      if (const auto one = find_matmul(group, sink)) matmuls = {*one};
    if (group.size() == 1 && matmuls.empty()) return;
    const char* what = matmuls.empty()       ? "elementwise ops in one"
                       : matmuls.size() == 1 ? "elementwise ops in the epilogue of a matmul"
                                             : "two matmuls and the elementwise ops that join them";
    context_.fused(what, graph_.ops[sink].name);
    replace(group, sink, matmuls);
  }

  // The op that makes `t`, if nothing outside the group reads `t` and the op may move to the sink.
  std::optional<size_t> movable_producer(const Group& group, size_t sink, TensorId t) const {
    const std::vector<size_t>& writers = writers_[index(t)];
    if (writers.empty() || graph_[t].kind != TensorKind::Temp || group.count(writers.back()))
      return std::nullopt;
    const size_t i = writers.back();
    const Op& op = graph_.ops[i];
    const std::set<size_t>& users = users_[index(t)];
    if (!std::all_of(users.begin(), users.end(), [&](size_t u) { return group.count(u) > 0; }))
      return std::nullopt;
    if (op.out.size() != 1 || graph_[t].shape != graph_[graph_.ops[sink].out[0]].shape)
      return std::nullopt;
    if (constraints_.awaited(op) || !constraints_.same(op, graph_.ops[sink])) return std::nullopt;
    const auto fence = std::upper_bound(fences_.begin(), fences_.end(), i);
    if (fence != fences_.end() && *fence < sink) return std::nullopt;
    for (TensorId read : op.in)
      if (graph_[read].kind == TensorKind::State && overwritten(read, i, group, sink))
        return std::nullopt;
    if (crosses_region(i, sink)) return std::nullopt;
    return i;
  }

  // Whether an op outside of the group, between op `i` and the sink, writes `t`.
  bool overwritten(TensorId t, size_t i, const Group& group, size_t sink) const {
    const std::vector<size_t>& writers = writers_[index(t)];
    for (auto w = std::upper_bound(writers.begin(), writers.end(), i);
         w != writers.end() && *w < sink; ++w)
      if (!dead_[*w] && !group.count(*w)) return true;
    return false;
  }

  // Whether an overlap region that contains neither op ends between the two.
  bool crosses_region(size_t from, size_t to) const {
    return std::any_of(regions_.begin(), regions_.end(), [&](const std::set<size_t>& members) {
      if (members.count(from) && !dead_[from]) return false;
      const auto last =
          std::find_if(members.rbegin(), members.rend(), [&](size_t k) { return !dead_[k]; });
      return last != members.rend() && *last > from && *last < to;
    });
  }

  bool grow(Group& group, size_t sink) const {
    for (size_t g : group) {
      for (TensorId t : graph_.ops[g].in) {
        const auto p = movable_producer(group, sink, t);
        if (!p || !ops::is_elementwise(graph_.ops[*p].kind)) continue;
        Group larger = group;
        larger.insert(*p);
        if (operands(larger).size() > kMaxOperands || steps(larger) > kMaxSteps) continue;
        group = std::move(larger);
        return true;
      }
    }
    return false;
  }

  std::optional<size_t> find_matmul(const Group& group, size_t sink) const {
    std::optional<size_t> best;
    const std::vector<TensorId> inputs = operands(group);
    if (!ir::is_float(graph_[graph_.ops[sink].out[0]].dtype)) return best;
    for (TensorId t : inputs) {
      const auto p = movable_producer(group, sink, t);
      if (!p || graph_.ops[*p].kind != "matmul") continue;
      const Op& m = graph_.ops[*p];
      if (m.attrs.count("epilogue") > 0 || m.attrs.count("turned") > 0) continue;
      // All tiles of the matmul read its own operands, so that the result must not overwrite them.
      bool fits = ir::is_float(graph_[m.in[0]].dtype) && ir::is_float(graph_[t].dtype) &&
                  std::find(m.in.begin(), m.in.end(), graph_.ops[sink].out[0]) == m.in.end();
      for (TensorId other : inputs)
        fits = fits && (other == t || (ir::is_float(graph_[other].dtype) &&
                                       (ready(other, *p, sink) || beside(other, *p))));
      if (fits && (!best || *p > *best)) best = p;
    }
    return best;
  }

  // Two matmuls with one left operand, both of whose results the group reads; empty if there are
  // none.
  std::vector<size_t> find_pair(const Group& group, size_t sink) const {
    std::vector<size_t> pair;
    const std::vector<TensorId> inputs = operands(group);
    if (!ir::is_float(graph_[graph_.ops[sink].out[0]].dtype)) return pair;
    for (TensorId t : inputs) {
      const auto p = movable_producer(group, sink, t);
      if (!p || !may_pair(graph_.ops[*p])) continue;
      pair.push_back(*p);
    }
    if (pair.size() != 2) return {};
    const Op &a = graph_.ops[pair[0]], &b = graph_.ops[pair[1]];
    if (a.in[0] != b.in[0] || graph_[a.in[1]].shape != graph_[b.in[1]].shape ||
        graph_[a.in[1]].dtype != graph_[b.in[1]].dtype || graph_[a.in[0]].kind == TensorKind::State)
      return {};
    // All tiles read the operands of both, so that the result must not overwrite them.
    const TensorId result = graph_.ops[sink].out[0];
    if (a.in[1] == result || b.in[1] == result) return {};
    for (TensorId t : inputs) {
      if (t == a.out[0] || t == b.out[0]) continue;
      if (!ir::is_float(graph_[t].dtype) || !ready(t, pair[0], sink)) return {};
    }
    return pair;
  }
  // Whether all other attributes have their defaults.
  static bool only_transposed(const Op& op) {
    return std::all_of(op.attrs.begin(), op.attrs.end(), [](const auto& attr) {
      const auto* word = std::get_if<std::string>(&attr.second.value);
      return attr.first == "transpose_b" || (attr.first == "activation" && word && *word == "none");
    });
  }
  bool may_pair(const Op& op) const {
    const auto is = [&](const char* attr) {
      const auto it = op.attrs.find(attr);
      return it != op.attrs.end() && std::get_if<bool>(&it->second.value) &&
             std::get<bool>(it->second.value);
    };
    return op.kind == "matmul" && op.in.size() == 2 && is("transpose_b") && only_transposed(op) &&
           ir::is_float(graph_[op.in[0]].dtype) && ops::may_be_paired(graph_, op, context_.machine);
  }

  // Whether `t`, as the sink reads it, is ready when op `m` starts.
  bool ready(TensorId t, size_t m, size_t sink) const {
    const std::vector<size_t>& writers = writers_[index(t)];
    const auto behind = std::lower_bound(writers.begin(), writers.end(), sink);
    const auto writer = std::find_if(std::make_reverse_iterator(behind), writers.rend(),
                                     [&](size_t w) { return !dead_[w]; });
    return writer == writers.rend() || needs(m, *writer);
  }

  // Whether `t` is the result of an earlier matmul with the left operand of `m` and a method for
  // many rows. Its tiles end before the tiles of `m` at the same place.
  bool beside(TensorId t, size_t m) const {
    const std::vector<size_t>& writers = writers_[index(t)];
    if (writers.size() != 1 || writers[0] >= m) return false;
    const Op &other = graph_.ops[writers[0]], &own = graph_.ops[m];
    return other.kind == "matmul" && other.in[0] == own.in[0] && !constraints_.constrained(other) &&
           !constraints_.constrained(own) && ops::is_by_many_rows(graph_, own, context_.machine);
  }

  // Whether data of op k reaches op i.
  bool needs(size_t i, size_t k) const {
    ++search_;
    std::vector<size_t> open = {i};
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      for (size_t maker : makers_[at]) {
        if (maker == k) return true;
        if (maker < k || std::exchange(seen_[maker], search_) == search_) continue;
        open.push_back(maker);
      }
    }
    return false;
  }

  // What the group reads from outside, in the order of its members. The first member's first
  // operand has the group's shape.
  std::vector<TensorId> operands(const Group& group) const {
    std::set<TensorId> made;
    std::vector<TensorId> list;
    for (size_t g : group) {
      for (TensorId t : graph_.ops[g].in)
        if (!made.count(t) && std::find(list.begin(), list.end(), t) == list.end())
          list.push_back(t);
      // The sink may write a state that the group reads, with another value.
      if (graph_[graph_.ops[g].out[0]].kind == TensorKind::Temp) made.insert(graph_.ops[g].out[0]);
    }
    return list;
  }

  size_t steps(const Group& group) const {
    size_t n = 0;
    for (size_t g : group) n += ops::body_of(graph_, graph_.ops[g]).steps.size();
    return n;
  }

  void replace(const Group& group, size_t sink, const std::vector<size_t>& matmuls) {
    std::vector<TensorId> inputs = operands(group);
    Body body;
    std::map<TensorId, BodyArg> known;
    // The first operands are the accumulators. The first use of each replaces the tensor that the
    // matmul would have written.
    const int sums = static_cast<int>(matmuls.size());
    for (int i = 0; i < sums; ++i) {
      const TensorId product = graph_.ops[matmuls[static_cast<size_t>(i)]].out[0];
      inputs.erase(std::find(inputs.begin(), inputs.end(), product));
      body.steps.push_back({"copy", {BodyArg::operand(i)}, graph_[product].dtype});
      known[product] = BodyArg::step(i);
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      known[inputs[i]] = BodyArg::operand(static_cast<int>(i) + sums);
    for (size_t g : group) ops::append_body(graph_, graph_.ops[g], body, known);

    Op op = graph_.ops[sink];
    op.attrs.clear();
    op.dtype = body.dtype();
    if (sums > 0) {
      const Op& m = graph_.ops[matmuls[0]];
      op.kind = m.kind;
      op.attrs = m.attrs;
      op.attrs["epilogue"] = {ir::print(body), m.loc};
      op.in = m.in;
      if (sums > 1) {
        op.attrs["paired"] = {true, m.loc};
        op.in.push_back(graph_.ops[matmuls[1]].in[1]);
      }
      op.in.insert(op.in.end(), inputs.begin(), inputs.end());
      op.in_loc = m.in_loc;
      op.loc = m.loc;
    } else {
      op.kind = "fused";
      op.attrs["body"] = {ir::print(body), op.loc};
      op.in = inputs;
      op.in_loc.clear();
    }
    op.in_loc.resize(op.in.size(), op.loc);

    Group gone = group;
    gone.insert(matmuls.begin(), matmuls.end());
    for (size_t g : gone) {
      for (TensorId t : graph_.ops[g].in) users_[index(t)].erase(g);
      if (g != sink) dead_[g] = true;
    }
    for (TensorId t : op.in) users_[index(t)].insert(sink);
    graph_.ops[sink] = std::move(op);
  }

  ir::Graph& graph_;
  PassContext& context_;
  Constraints constraints_;
  std::vector<bool> dead_;
  std::vector<std::vector<size_t>> makers_;  // by op: the ops that made what it reads
  // By op: the last search that visited it.
  mutable std::vector<size_t> seen_;
  mutable size_t search_ = 0;
  std::vector<std::vector<size_t>> writers_;  // by tensor: ops, ascending
  std::vector<std::set<size_t>> users_;       // by tensor
  std::vector<size_t> fences_;                // ops, ascending
  std::vector<std::set<size_t>> regions_;     // their members
};

}  // namespace

bool fuse(ir::Graph& graph, PassContext& context) {
  // If the user says which ops run on which SMs, each op keeps its kind.
  if (roles_name_ops(graph)) return true;
  context.statistics["ops fused away"] += Fuser(graph, context).run();
  return true;
}

}  // namespace maco::passes
