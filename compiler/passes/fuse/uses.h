// What rules ask of a graph: who makes and reads its tensors, and what the user forbids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/passes/graph_edit.h"
#include "ir/graph.h"

namespace maco::passes {

constexpr size_t kNoWriter = SIZE_MAX;

/// Who reads and writes what in a graph as a rule finds it; it doesn't follow changes. Ops are
/// named by their index.
struct Uses {
  explicit Uses(const ir::Graph& graph);
  Constraints constraints;
  /// By tensor: the ops that read it (as often as they do) or write it, ascending.
  std::vector<std::vector<size_t>> readers, writers;
  std::vector<size_t> fences;  // the ops that none may cross, ascending

  /// The last op that writes `t`, or kNoWriter.
  size_t writer(ir::TensorId t) const {
    return writers[index(t)].empty() ? kNoWriter : writers[index(t)].back();
  }
  /// Whether a fence is between the two ops.
  bool fence_between(size_t from, size_t to) const;
  bool is_fence(size_t op) const;
};

/// Why what `op` makes of `from` must be written to memory, or "": it is declared, or of another
/// type than `from`.
std::string refuse_result(const ir::Graph& graph, const ir::Op& op, ir::TensorId from);
/// Why `op` must be an op of its own, or "": a constraint concerns it, its result must be written
/// to memory, or it reads a state, which may change until its readers run.
std::string refuse_op(const ir::Graph& graph, const Uses& uses, const ir::Op& op);
/// Why the op that makes `y` can't do more with its sums ("rotates" them, "appends" them: `verb`),
/// or "". The op may be no matmul, may already do something with its sums that excludes `stage`, or
/// may have constraints of the user's.
std::string refuse_maker(const ir::Graph& graph, const Uses& uses, ir::TensorId y, const char* verb,
                         const char* stage);

/// Whether the user, or a pass, has said how the op is cut into tasks.
bool is_cut(const ir::Op& op);
/// Whether the user says when the op starts.
bool is_told_when(const ir::Op& op);
/// Whether the op may overlap with everything else.
bool overlaps_with_all(const ir::Graph& graph, const ir::Op& op);
/// The most rows of a tensor; nothing if there is no bound.
std::optional<int64_t> most_rows(const ir::Graph& graph, ir::TensorId t);

}  // namespace maco::passes
