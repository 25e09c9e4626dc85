#include "compiler/passes/fuse/groups.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "compiler/ops/elementwise.h"
#include "compiler/passes/graph_edit.h"

namespace maco::passes {

using ir::Body;
using ir::BodyArg;
using ir::Op;
using ir::TensorId;
using ir::TensorKind;

Groups::Groups(ir::Graph& graph, PassContext& context)
    : graph_(graph),
      context_(context),
      uses_(graph),
      dead_(graph.ops.size(), false),
      makers_(graph.ops.size()),
      seen_(graph.ops.size(), SIZE_MAX),
      readers_(graph.tensors.size()) {
  std::vector<size_t> maker(graph.tensors.size(), kNoWriter);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (TensorId t : graph.ops[i].in) {
      readers_[index(t)].insert(i);
      if (maker[index(t)] != kNoWriter) makers_[i].push_back(maker[index(t)]);
    }
    for (TensorId t : graph.ops[i].out) maker[index(t)] = i;
  }
  for (const ir::OverlapRegion& r : graph.overlap_regions) {
    std::set<size_t> members;
    for (const std::string& name : r.ops)
      if (const auto op = graph.find_op(name)) members.insert(index(*op));
    regions_.push_back(std::move(members));
  }
}

void Groups::fuse(const std::vector<Join>& joins) {
  for (size_t sink = graph_.ops.size(); sink-- > 0;) {
    if (dead_[sink] || !ops::is_elementwise(graph_.ops[sink].kind)) continue;
    Group group{.sink = sink, .ops = {sink}, .products = {}, .product = {}};
    for (Join join : joins) join(*this, group);
    if (group.ops.size() == 1 && group.products.empty()) continue;
    context_.fused(group.what, graph_.ops[sink].name);
    replace(group);
  }
  context_.statistics["ops fused away"] += std::count(dead_.begin(), dead_.end(), true);
  erase_ops(graph_, dead_);
}

std::optional<size_t> Groups::movable_producer(const Group& group, TensorId t) const {
  const std::vector<size_t>& writers = uses_.writers[index(t)];
  if (writers.empty() || graph_[t].kind != TensorKind::Temp || group.ops.count(writers.back()))
    return std::nullopt;
  const size_t i = writers.back();
  const Op& op = graph_.ops[i];
  const std::set<size_t>& readers = readers_[index(t)];
  if (!std::all_of(readers.begin(), readers.end(),
                   [&](size_t r) { return group.ops.count(r) > 0; }))
    return std::nullopt;
  if (op.out.size() != 1 || graph_[t].shape != graph_[result(group)].shape) return std::nullopt;
  const Constraints& constraints = uses_.constraints;
  if (constraints.awaited(op) || !constraints.same(op, graph_.ops[group.sink])) return std::nullopt;
  if (uses_.fence_between(i, group.sink)) return std::nullopt;
  for (TensorId read : op.in)
    if (graph_[read].kind == TensorKind::State && is_overwritten(read, i, group))
      return std::nullopt;
  if (crosses_region(i, group.sink)) return std::nullopt;
  return i;
}

// Whether an op outside of the group, between op `i` and the sink, writes `t`.
bool Groups::is_overwritten(TensorId t, size_t i, const Group& group) const {
  const std::vector<size_t>& writers = uses_.writers[index(t)];
  for (auto w = std::upper_bound(writers.begin(), writers.end(), i);
       w != writers.end() && *w < group.sink; ++w)
    if (!dead_[*w] && !group.ops.count(*w)) return true;
  return false;
}

// Whether an overlap region that contains neither op ends between the two.
bool Groups::crosses_region(size_t from, size_t to) const {
  return std::any_of(regions_.begin(), regions_.end(), [&](const std::set<size_t>& members) {
    if (members.count(from) && !dead_[from]) return false;
    const auto last =
        std::find_if(members.rbegin(), members.rend(), [&](size_t k) { return !dead_[k]; });
    return last != members.rend() && *last > from && *last < to;
  });
}

bool Groups::is_ready(TensorId t, size_t i, const Group& group) const {
  const std::vector<size_t>& writers = uses_.writers[index(t)];
  const auto behind = std::lower_bound(writers.begin(), writers.end(), group.sink);
  const auto writer = std::find_if(std::make_reverse_iterator(behind), writers.rend(),
                                   [&](size_t w) { return !dead_[w]; });
  return writer == writers.rend() || needs(i, *writer);
}

// Whether data of op k reaches op i.
bool Groups::needs(size_t i, size_t k) const {
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

std::vector<TensorId> Groups::operands(const Group& group) const {
  std::set<TensorId> made;
  std::vector<TensorId> list;
  for (size_t g : group.ops) {
    for (TensorId t : graph_.ops[g].in)
      if (!made.count(t) && std::find(list.begin(), list.end(), t) == list.end()) list.push_back(t);
    // The sink may write a state that the group reads, with another value.
    const TensorId written = graph_.ops[g].out[0];
    if (graph_[written].kind == TensorKind::Temp) made.insert(written);
  }
  return list;
}

size_t Groups::steps(const Group& group) const {
  size_t n = 0;
  for (size_t g : group.ops) n += ops::body_of(graph_, graph_.ops[g]).steps.size();
  return n;
}

void Groups::replace(const Group& group) {
  std::vector<TensorId> inputs = operands(group);
  Body body;
  std::map<TensorId, BodyArg> known;
  // The first operands are the accumulators. The first use of each replaces the tensor that the
  // product would have written.
  const int sums = static_cast<int>(group.products.size());
  for (int i = 0; i < sums; ++i) {
    const TensorId sum = graph_.ops[group.products[static_cast<size_t>(i)]].out[0];
    inputs.erase(std::find(inputs.begin(), inputs.end(), sum));
    body.steps.push_back({"copy", {BodyArg::operand(i)}, graph_[sum].dtype});
    known[sum] = BodyArg::step(i);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    known[inputs[i]] = BodyArg::operand(static_cast<int>(i) + sums);
  for (size_t g : group.ops) ops::append_body(graph_, graph_.ops[g], body, known);

  Op op = graph_.ops[group.sink];
  op.attrs.clear();
  op.dtype = body.dtype();
  if (sums > 0) {
    const Op& product = group.product;
    op.kind = product.kind;
    op.attrs = product.attrs;
    op.attrs["epilogue"] = {ir::print(body), product.loc};
    op.in = product.in;
    op.in.insert(op.in.end(), inputs.begin(), inputs.end());
    op.in_loc = product.in_loc;
    op.loc = product.loc;
  } else {
    op.kind = "fused";
    op.attrs["body"] = {ir::print(body), op.loc};
    op.in = inputs;
    op.in_loc.clear();
  }
  op.in_loc.resize(op.in.size(), op.loc);

  std::set<size_t> gone = group.ops;
  gone.insert(group.products.begin(), group.products.end());
  for (size_t g : gone) {
    for (TensorId t : graph_.ops[g].in) readers_[index(t)].erase(g);
    if (g != group.sink) dead_[g] = true;
  }
  for (TensorId t : op.in) readers_[index(t)].insert(group.sink);
  graph_.ops[group.sink] = std::move(op);
}

}  // namespace maco::passes
