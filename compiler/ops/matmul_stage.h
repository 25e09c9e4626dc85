// What matmuls do besides multiplying, as their attributes say it. Each such stage is one file in
// compiler/ops/stages, which says which attributes and inputs it has, what it asks of tiles, and
// what a task reads and writes for it. Its device code is the functions::Stage of the same name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/functions/matmul.h"
#include "compiler/ops/op.h"
#include "compiler/ops/tile.h"
#include "ir/graph.h"

namespace maco::ops {

using functions::MatmulShape;
struct MatmulStage;
struct MatmulTiling;
struct TaskStage;

/// A stage of an op, and the first of its inputs.
struct StageUse {
  const MatmulStage* stage = nullptr;
  int first = 0;
};

/// The order of inputs: a, b, those of each stage, the bias if there is one, then the epilogue's
/// operands.
struct MatmulInputs {
  std::vector<StageUse> stages{};
  int sums = 1;            // of an element of the result: the epilogue's operands %0, ...
  int bias_at = 2;         // the first input behind those of stages
  int epilogue_first = 2;  // the input that is the epilogue's first operand behind the sums
  bool bias = false;

  /// The use of a stage, or nullptr.
  const StageUse* find(std::string_view stage) const;
};
/// The stages that the op's attributes name, in their order.
std::vector<StageUse> matmul_stages_of(const ir::Op& op);
/// The op's epilogue, if it has one, can be parsed.
MatmulInputs matmul_inputs(const ir::Op& op);

/// A task's part of the result: rows [r0, r1) of `block`, columns [n0, n1) of its tile, of which it
/// finishes [own0, own1).
struct MatmulPart {
  ir::Block block{};
  int64_t r0 = 0, r1 = 0, n0 = 0, n1 = 0, own0 = 0, own1 = 0;
};

/// Gives `op` the inputs of a stage that it doesn't have, at their place. The caller sets the
/// stage's attributes.
void add_stage_inputs(ir::Op& op, std::string_view stage, const std::vector<ir::TensorId>& inputs,
                      ir::Loc loc);
/// Whether `op` may get the stage besides those that it has (functions::Stage::beside).
bool may_have_stage(const ir::Op& op, std::string_view stage);

struct MatmulStage {
  std::string name;  // of the functions::Stage of "matmul"
  /// Attributes, which only passes write. A matmul has the stage if it has the first of them and
  /// that one isn't false, or if `tasks` says so.
  std::vector<AttrSpec> attrs{};
  int inputs = 0;     // how many it has
  int sums = 1;       // of an element
  bool more = false;  // whether it has outputs besides the result
  /// Whether the rows may also come in blocks, one for each rank (stages "gather" and "add").
  bool in_blocks = false;
  /// Checks inputs, outputs and attributes, whose types are known. `first`: its first input.
  void (*check)(InferContext&, const MatmulInputs&, int first) = nullptr;
  /// What it asks of tiles. Null: nothing.
  void (*shape)(const ir::Graph&, const ir::Op&, MatmulShape&) = nullptr;
  /// What it asks of tiles where that follows from neighbours. Null: nothing.
  void (*asks)(const TileContext&, MatmulShape&) = nullptr;
  /// Why a matmul with it can't have this cut, or "". Null: any cut that the shape allows.
  std::string (*refuse_cut)(const TileContext&, const Cut&) = nullptr;
  /// The parameters of its functions::Stage. Null: none.
  std::vector<ir::Param> (*params)(TileContext&, int first) = nullptr;
  /// What a task reads of input `first` + `k`. Null: nothing, as it has no inputs.
  ir::Access (*reads)(const TileContext&, const MatmulPart&, int first, int k) = nullptr;
  /// Its operands behind the result. Null: none.
  std::vector<ir::BufferId> (*results)(TileContext&) = nullptr;
  /// What finds a task's writes to the result `y` and to these operands; at most one stage of a
  /// matmul has it. Null: a task writes its part of the result.
  std::function<std::vector<ir::Access>(const MatmulPart&)> (*writer)(TileContext&,
                                                                      const Mat& y) = nullptr;
  /// Tiles may come one block of rows after the other, each of a rank. This is how many ranks
  /// further on the first block's is; the blocks before it have no tasks. Null, or nothing: tiles
  /// come in the order of the tile rule.
  std::optional<int32_t> (*first_block)(const TileContext&, const MatmulTiling&) = nullptr;
  /// Set for a stage that follows from the op's neighbours or its cut: what it does in the tasks of
  /// an op, or nothing if the op doesn't have it (matmul_tiling.h). refuse_cut is then asked for
  /// all ops, and inputs, checks and writers are of no use.
  std::optional<TaskStage> (*tasks)(TileContext&, const MatmulTiling&) = nullptr;
};

/// All stages in their order; the registered ones come last.
std::vector<MatmulStage> matmul_stages();

/// Makes a stage known to the whole process. To be called before the first graph is read, as ops
/// get its attributes, and after functions::register_stage. Returns "", or why it can't be
/// registered: there is no such functions::Stage, an attribute is missing, or a name is taken.
[[nodiscard]] std::string register_matmul_stage(MatmulStage stage);

/// Whether tasks of `product`, a matmul with this cut, are mates, each with half of K.
bool has_mates(const TileContext& product, const Cut& cut);

/// Why a matmul that `does` something with whole sums can't have this cut, or "": "turns heads".
std::string refuse_part_of_sums(const TileContext& product, const Cut& cut, std::string_view does);

/// Rows [r0, r1) of `m`, counted from those of a block of all rows.
ir::Region rows_of(const Mat& m, const ir::Block& block, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1);

/// The shape rule.
void infer_matmul(InferContext& context);

/// Why tasks of `op`, a matmul, can't rotate heads of its result, or "". They can on tensor cores,
/// with tiles that cover all of K and whole heads, if such tiles cost no more than a rope would.
std::string refuse_to_turn(const ir::Graph& graph, const ir::Op& op, int64_t head_dim,
                           const cost::Machine& machine);
/// Why tasks of `op`, a matmul, can't write the last columns of its result to caches, as their
/// rows, or "". They can on tensor cores, with tiles that cover all of K, if such tiles cost no
/// more than appends would.
std::string refuse_to_append(const ir::Graph& graph, const ir::Op& op,
                             const cost::Machine& machine);

// The stages, one file each.
MatmulStage pair_stage();
MatmulStage norm_stage();
MatmulStage turn_stage();
MatmulStage append_stage();
MatmulStage send_stage();
MatmulStage add_stage();
MatmulStage gather_stage();
MatmulStage halve_stage();

}  // namespace maco::ops
