// A graph's `pipeline`: rows are cut into microbatches, stages overlap.
//
// Ops stay whole, and with them how K is split and sums are ordered: a pipeline changes no bit.
// Their tasks have the rows of one microbatch where their tiles can be so low, and come in the
// order in which microbatches go through the stages: the second microbatch is in the first stage
// while the first is in the second. What tasks wait for are the tiles that they read, as ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/options.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::passes {

class Microbatches {
 public:
  /// Of a graph with shapes. Empty if it has no pipeline.
  explicit Microbatches(const ir::Graph& graph);

  /// Whether `graph` can be run so; reports each op that can't. Rows (extents of axis 0) must be as
  /// many in all stages, or multiples.
  static bool check(const ir::Graph& graph, ir::Diagnostics& diagnostics);

  /// The stage of an op, from 0.
  std::optional<size_t> stage_of(ir::OpId op) const { return stages_[index(op)]; }
  /// The cut of an op of a stage with tiles within a microbatch: the highest of those of `cut` or
  /// lower whose multiple it is, else the highest that are no higher. `cut` if the op takes no such
  /// tiles; then some have rows of several microbatches.
  ops::Cut within(const ops::TileContext& op, ops::Cut cut) const;
  /// Puts the tasks in order: by microbatch plus stage, and behind what they depend on. Those of
  /// other ops come ahead of the stages, or as soon as what they need, and those behind the last
  /// stage stay there. False, having reported, if ranks would wait for each other for ever then.
  bool order(ir::Program& program, PassContext& context) const;

 private:
  /// Of a tensor that has rows: how many elements at most a microbatch has of it.
  int64_t elements(const ir::Tensor& tensor) const;
  /// By task, that of its first rows; -1 for tasks of other ops.
  std::vector<int64_t> microbatches(const ir::Program& program) const;
  /// When tasks come. Where ranks pass on what they receive, one microbatch may not begin on a rank
  /// before the one ahead has left another (OneByOne); and other collectives may have to keep their
  /// places among those of stages (InPlaces).
  enum class Flow { Overlapped, OneByOne, InPlaces };
  std::vector<int64_t> times(const ir::Program& program, const std::vector<int64_t>& microbatches,
                             Flow flow) const;

  const ir::Graph& graph_;
  std::map<std::string_view, size_t> op_of_;   // by name
  std::vector<std::optional<size_t>> stages_;  // by op
  int64_t rows_ = 0;                           // at most, of the stage with the fewest
  int64_t each_ = 0;                           // of these, in a microbatch
};

}  // namespace maco::passes
