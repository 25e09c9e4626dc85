// canonicalize.cpp: gives each meaning one spelling, and drops what nothing uses.
//
// - A collective in a world of one becomes a copy; so does a message that its only rank sends to
//   itself.
// - An op that reads the state that it writes gets its result in a temporary, and a copy behind it:
//   a tile must not read what another tile of the same op has written. Elementwise ops, whose tiles
//   read just what they write, and kv_append, which doesn't read its cache, work in place.
// - Likewise a collective that delivers into a state that other ops write.
// - A copy that no constraint concerns is left out if its operand can replace its result, or if the
//   op that makes its operand can write the declared output itself.
// - Ops whose results nothing uses are left out, with a warning.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/messages.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/movement.h"
#include "compiler/passes/graph_edit.h"
#include "compiler/passes/passes.h"
#include "ir/check.h"

namespace maco::passes {

using ir::Op;
using ir::TensorId;
using ir::TensorKind;

namespace {

bool contains(const std::vector<TensorId>& list, TensorId t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

bool is_lone_collective(const ir::Graph& graph, const Op& op) {
  const ops::OpDef* def = ops::find_op(op.kind);
  return graph.world == 1 && def && def->collective && op.in.size() == 1 && op.out.size() == 1;
}

void become_copy(const ir::Graph& graph, Op& op) {
  op.kind = ops::kCopy;
  op.attrs.clear();
  // The graph's constraints on collectives still apply to the copy.
  const bool alone = op.overlap.value_or(graph.overlap) == ir::Overlap::None;
  if (alone) op.overlap = ir::Overlap::None;
  if (alone || op.overlap_group) op.attrs["collective"] = {true, op.loc};
}

void copy_lone_collectives(ir::Graph& graph) {
  for (Op& op : graph.ops)
    if (is_lone_collective(graph, op)) become_copy(graph, op);
}

// What the only rank sends to itself becomes a copy at each end, so that the receiver gets the
// value at the time of sending. If the receive comes before the send, slots keep the value.
void copy_lone_messages(ir::Graph& graph) {
  if (graph.world != 1) return;
  ir::Diagnostics unheard;  // errors were reported when the graph was built
  const ops::Messages messages = ops::Messages::match(graph, unheard);
  if (messages.all().empty()) return;
  FreshNames names(graph);
  // The ops' names count ops of their kind, which become fewer.
  for (Op& op : graph.ops)
    op.named = op.named || ops::find_op(op.kind)->message == ops::MessageEnd::Send;
  for (const ops::Message& m : messages.all()) {
    if (m.recv < m.send) continue;
    Op &send = graph[m.send], &recv = graph[m.recv];
    ir::Tensor sent = graph[send.in[0]];
    sent.name = names.tensor(recv.name + ".sent");
    sent.kind = TensorKind::Temp;
    sent.loc = send.loc;
    recv.in = send.out = {ir::id_of<TensorId>(graph.tensors.size())};
    recv.in_loc = {recv.loc};
    graph.tensors.push_back(std::move(sent));
    for (Op* op : {&send, &recv}) become_copy(graph, *op);
  }
}

// Whether op may write output `o` although it reads the same state.
bool works_in_place(const ir::Graph& graph, const Op& op, TensorId o) {
  if (ops::is_elementwise(op.kind)) {
    const auto full = [&](TensorId t) { return t != o || graph[t].shape == graph[op.in[0]].shape; };
    return std::all_of(op.in.begin(), op.in.end(), full);
  }
  const ops::OpDef* def = ops::find_op(op.kind);
  if (def->in_place) return def->in_place(op, o);
  // An epilogue reads each element where it writes it; all tiles read the other operands.
  const auto epilogue = op.attrs.find("epilogue");
  if (epilogue == op.attrs.end()) return false;
  std::string error;
  const auto body = ir::parse_body(std::get<std::string>(epilogue->second.value), error);
  MACO_CHECK(body, error);
  const auto own = op.in.end() - std::max(0, body->operands() - 1);
  return std::find(op.in.begin(), own, o) == own;
}

bool overwrites_what_it_reads(const ir::Graph& graph, const Op& op, TensorId o) {
  return contains(op.in, o) && !works_in_place(graph, op, o);
}

/// Whether a collective delivers into a state that other ops write, too.
bool shares_its_state(const ir::Graph& graph, const Op& op, TensorId o,
                      const std::vector<int>& writers) {
  return graph[o].kind == TensorKind::State && writers[index(o)] > 1 &&
         ops::find_op(op.kind)->collective;
}
/// By tensor: how many ops write it.
std::vector<int> count_writers(const ir::Graph& graph) {
  std::vector<int> writers(graph.tensors.size(), 0);
  for (const Op& op : graph.ops)
    for (const TensorId o : op.out) ++writers[index(o)];
  return writers;
}
bool needs_a_temporary(const ir::Graph& graph, const Op& op, TensorId o,
                       const std::vector<int>& writers) {
  return overwrites_what_it_reads(graph, op, o) || shares_its_state(graph, op, o, writers);
}

void separate_states(ir::Graph& graph) {
  const std::vector<int> writers = count_writers(graph);
  const auto overwrites = [&](const Op& op) {
    return std::any_of(op.out.begin(), op.out.end(),
                       [&](TensorId o) { return needs_a_temporary(graph, op, o, writers); });
  };
  if (std::none_of(graph.ops.begin(), graph.ops.end(), overwrites)) return;
  FreshNames names(graph);
  std::vector<Op> ops;  // the new list of ops
  for (Op& op : graph.ops) {
    std::vector<Op> behind;
    for (size_t n = 0; n < op.out.size(); ++n) {
      const TensorId state = op.out[n];
      if (!needs_a_temporary(graph, op, state, writers)) continue;

      // What can't write anywhere else has a copy of what it writes.
      const bool writes_part = ops::find_op(op.kind)->writes_part;
      ir::Tensor value;
      value.name = names.tensor(graph[state].name + ".value");
      value.dtype = graph[state].dtype;
      value.shape = graph[state].shape;
      value.loc = graph[state].loc;
      const TensorId temp = ir::id_of<TensorId>(graph.tensors.size());
      graph.tensors.push_back(value);

      Op copy;
      copy.kind = ops::kCopy;
      copy.after = op.after;
      copy.phase = op.phase;
      copy.overlap_group = op.overlap_group;
      copy.priority = op.priority;
      copy.loc = op.loc;
      copy.in_loc = {op.loc};
      copy.out_loc = op.out_loc;
      const std::string name = op.name, other = names.op(op.name + ".value");
      if (writes_part) {
        copy.in = {state};
        copy.out = {temp};
        copy.name = other;
        op.in[1] = temp;
      } else {
        // The copy ends last; it keeps the name, for which others may wait.
        copy.in = {temp};
        copy.out = {state};
        copy.name = name;
        copy.named = op.named;
        op.name = other;
        op.named = true;
        op.out[n] = temp;
        if (op.out.size() == 1 && !op.dtype) op.dtype = value.dtype;
        // An op without operands takes its shape from the declaration.
        if (op.in.empty()) op.attrs.try_emplace("shape", ir::Attr{value.shape, op.loc});
      }
      copy.named = true;
      join_places(graph, name, other);
      (writes_part ? ops : behind).push_back(std::move(copy));
      if (writes_part) break;
    }
    ops.push_back(std::move(op));
    // The copy of the last state comes first.
    ops.insert(ops.end(), std::make_move_iterator(behind.rbegin()),
               std::make_move_iterator(behind.rend()));
  }
  graph.ops = std::move(ops);
}

bool is_identity(const ir::Graph& graph, const Op& op) {
  return ops::find_op(op.kind)->converts && graph[op.in[0]].dtype == graph[op.out[0]].dtype &&
         graph[op.in[0]].shape == graph[op.out[0]].shape;
}

// The readers and writers of each tensor, kept up to date while ops are removed and operands are
// replaced.
class Uses {
 public:
  explicit Uses(ir::Graph& graph)
      : graph_(graph), readers_(graph.tensors.size()), writers_(graph.tensors.size()) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      for (TensorId t : graph.ops[i].in) readers_[index(t)].push_back(i);
      for (TensorId t : graph.ops[i].out) writers_[index(t)].push_back(i);
    }
    reads_.reserve(readers_.size());
    for (const auto& readers : readers_) reads_.push_back(readers.size());
  }
  bool written_after(size_t i, TensorId t) const {
    return !writers_[index(t)].empty() && writers_[index(t)].back() > i;
  }
  /// Is it of an op whose attributes name it, too?
  bool is_named(TensorId t) const {
    for (const auto* list : {&readers_[index(t)], &writers_[index(t)]})
      for (const size_t i : *list)
        if (ops::find_op(graph_.ops[i].kind)->names_tensors) return true;
    return false;
  }
  /// How many operands of the remaining ops the tensor is.
  size_t reads(TensorId t) const { return reads_[index(t)]; }
  void drop(size_t i) {
    for (TensorId t : graph_.ops[i].in) --reads_[index(t)];
  }
  /// Makes all readers of `from` read `to`.
  void replace_reads(TensorId from, TensorId to) {
    auto &old = readers_[index(from)], &now = readers_[index(to)];
    for (size_t i : old) {
      std::vector<TensorId>& in = graph_.ops[i].in;
      std::replace(in.begin(), in.end(), from, to);
    }
    now.insert(now.end(), old.begin(), old.end());
    old.clear();
    reads_[index(to)] += std::exchange(reads_[index(from)], 0);
  }
  /// Makes the ops before op `i` that write `from`, which is no state, write `to`.
  void replace_writes(TensorId from, TensorId to, size_t i) {
    for (size_t w : writers_[index(from)]) {
      if (w >= i) continue;
      std::vector<TensorId>& out = graph_.ops[w].out;
      std::replace(out.begin(), out.end(), from, to);
      graph_.ops[w].named = true;  // it keeps its name, which was that of the temporary
    }
  }

 private:
  ir::Graph& graph_;
  std::vector<std::vector<size_t>> readers_, writers_;  // by tensor: ops, ascending
  std::vector<size_t> reads_;                           // by tensor
};

void drop_copies(ir::Graph& graph) {
  const Constraints constraints(graph);
  Uses uses(graph);
  std::vector<bool> dead(graph.ops.size(), false);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    if (!is_identity(graph, op) || constraints.constrained(op)) continue;
    const TensorId from = op.in[0], to = op.out[0];
    if (graph[to].kind == TensorKind::Temp) {
      if (uses.is_named(to)) continue;
      if (graph[from].kind == TensorKind::State && uses.written_after(i, from)) continue;
      uses.replace_reads(to, from);
    } else if (graph[to].kind == TensorKind::Output && graph[from].kind == TensorKind::Temp &&
               uses.reads(from) == 1 && !uses.is_named(from)) {
      uses.replace_writes(from, to, i);
    } else {
      continue;
    }
    uses.drop(i);
    dead[i] = true;
  }
  erase_ops(graph, dead);
}

void drop_unused(ir::Graph& graph, PassContext& context) {
  const Constraints constraints(graph);
  std::vector<bool> dead(graph.ops.size(), false);
  std::vector<bool> used(graph.tensors.size(), false);
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    const ops::OpDef* def = ops::find_op(op.kind);
    const bool communicates = !def || def->collective;
    const auto needless = [&](TensorId t) {
      return graph[t].kind == TensorKind::Temp && !used[index(t)];
    };
    dead[i] = !communicates && !constraints.constrained(op) &&
              std::all_of(op.out.begin(), op.out.end(), needless);
    if (dead[i]) continue;
    for (TensorId t : op.in) used[index(t)] = true;
  }
  for (size_t i = 0; i < graph.ops.size(); ++i)
    if (dead[i])
      context.diagnostics.warning(
          graph.ops[i].loc,
          fmt::format("nothing uses the result of '{}'; it is left out", graph.ops[i].name));
  erase_ops(graph, dead);
}

}  // namespace

bool canonicalize(ir::Graph& graph, PassContext& context) {
  copy_lone_collectives(graph);
  copy_lone_messages(graph);
  separate_states(graph);
  drop_copies(graph);
  drop_unused(graph, context);
  return true;
}

bool is_canonical(const ir::Graph& graph) {
  const std::vector<int> writers = count_writers(graph);
  return std::none_of(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
    return is_lone_collective(graph, op) ||
           std::any_of(op.out.begin(), op.out.end(),
                       [&](TensorId o) { return needs_a_temporary(graph, op, o, writers); });
  });
}

}  // namespace maco::passes
