// A graph's `pipeline`: rows are cut into microbatches, and stages overlap.
//
// Ops stay whole, and so do the splitting of K and the order of additions: a pipeline changes no
// bits. Tasks have the rows of one microbatch, if tiles can be so low. Tasks come in the order in
// which microbatches go through the stages: the second microbatch is in the first stage while the
// first is in the second. As always, tasks wait only for the tiles that they read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "compiler/passes/passes.h"
#include "ir/diagnostics.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace maco::passes {

class Microbatches {
 public:
  /// For a graph with inferred shapes. Empty if it has no pipeline.
  explicit Microbatches(const ir::Graph& graph);

  /// Whether `graph` can run as a pipeline; reports each op that can't. The numbers of rows
  /// (extents of axis 0) must be equal in all stages, or multiples of each other.
  static bool check(const ir::Graph& graph, ir::Diagnostics& diagnostics);

  /// The stage of an op, from 0.
  std::optional<size_t> stage_of(ir::OpId op) const { return stages_[index(op)]; }
  /// The cut of an op in a stage with tiles that lie within a microbatch: the highest tiles that
  /// are as high as those of `cut` or a divisor of that; else the highest that are no higher. `cut`
  /// itself if the op takes no such tiles; some tiles then have rows of several microbatches.
  ops::Cut within(const ops::TileContext& op, ops::Cut cut) const;
  /// Puts the tasks in order: by microbatch plus stage, and behind what they depend on. Tasks of
  /// other ops come before the stages, or as soon as what they need; those behind the last stage
  /// stay there. Returns false, after reporting, if ranks would then wait for each other for ever.
  bool order(ir::Program& program, PassContext& context) const;

 private:
  /// The most elements of a tensor with rows that a microbatch has.
  int64_t elements(const ir::Tensor& tensor) const;
  /// For each task the microbatch of its first rows; -1 for tasks of other ops.
  std::vector<int64_t> microbatches(const ir::Program& program) const;
  /// When tasks come. OneByOne: ranks pass on what they receive, and one microbatch may not begin
  /// on a rank before the microbatch ahead of it has left another rank. InPlaces: other collectives
  /// keep their places among those of stages, too.
  enum class Flow { Overlapped, OneByOne, InPlaces };
  std::vector<int64_t> times(const ir::Program& program, const std::vector<int64_t>& microbatches,
                             Flow flow) const;

  const ir::Graph& graph_;
  std::map<std::string_view, size_t> op_of_;   // by name
  std::vector<std::optional<size_t>> stages_;  // by op
  int64_t rows_ = 0;                           // at most, in the stage with the fewest
  int64_t each_ = 0;                           // of these rows, in a microbatch
};

}  // namespace maco::passes
