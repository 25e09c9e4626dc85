// Groups of elementwise ops that become one op, alone or with the ops that make what they read.
//
// A group grows from its last op, the sink, towards the ops that make its operands. An op joins if
// its result is a temporary of the group's shape that nothing outside the group reads. Values with
// several readers, and declared ones, stay in memory. The group runs where the sink stood; so no op
// may overwrite a member's operand between the member and the sink, and no barrier may lie there.
// Members share all constraints: an op that a constraint names is never fused with an op that it
// doesn't name. Each step of the group's body rounds to the dtype of the tensor that it replaces,
// so that fusing never changes bits.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/passes/fuse/uses.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

constexpr size_t kMostOperands = 6, kMostSteps = 24;  // of a body: what a thread's registers hold

/// Elementwise ops that become one op where the last of them, the sink, stands.
struct Group {
  size_t sink = 0;
  std::set<size_t> ops;  // the sink, too
  /// Other ops whose results the elementwise ops read first, in the order of the body's operands;
  /// and the op that does the work of these, without an epilogue.
  std::vector<size_t> products;
  ir::Op product;
  std::string what = "elementwise ops in one";  // the note of what becomes one op
};

class Groups {
 public:
  using Join = void (*)(const Groups&, Group&);

  Groups(ir::Graph& graph, PassContext& context);
  /// Makes ops of all groups that `joins` find, the last sink first. Adds what they replace to the
  /// statistics.
  void fuse(const std::vector<Join>& joins);

  // For rules that join.
  const ir::Graph& graph() const { return graph_; }
  const ir::Op& op(size_t i) const { return graph_.ops[i]; }
  const cost::Machine& machine() const { return context_.machine; }
  const Uses& uses() const { return uses_; }
  ir::TensorId result(const Group& group) const { return op(group.sink).out[0]; }
  /// The op that makes `t`, if nothing outside the group reads `t` and the op may move to the sink.
  std::optional<size_t> movable_producer(const Group& group, ir::TensorId t) const;
  /// What the group reads from outside, in the order of its members. The first member's first
  /// operand has the group's shape.
  std::vector<ir::TensorId> operands(const Group& group) const;
  /// The steps of its body.
  size_t steps(const Group& group) const;
  /// Whether `t`, as the sink reads it, is ready when op `i` starts: `t` has no producer, or one on
  /// which op `i` itself depends.
  bool is_ready(ir::TensorId t, size_t i, const Group& group) const;

 private:
  bool is_overwritten(ir::TensorId t, size_t i, const Group& group) const;
  bool crosses_region(size_t from, size_t to) const;
  bool needs(size_t i, size_t k) const;
  void replace(const Group& group);

  ir::Graph& graph_;
  PassContext& context_;
  const Uses uses_;
  std::vector<bool> dead_;
  std::vector<std::vector<size_t>> makers_;  // by op: the ops that made what it reads
  // By op: the last search that visited it.
  mutable std::vector<size_t> seen_;
  mutable size_t search_ = 0;
  std::vector<std::set<size_t>> readers_;  // by tensor: those that are not dead
  std::vector<std::set<size_t>> regions_;  // their members
};

}  // namespace maco::passes
