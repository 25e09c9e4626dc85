// Stage halve: tasks that have half of K each are mates: they exchange sums, and each finishes half
// of the tile's columns. It follows from the cut.
#include "compiler/functions/matmul_method.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/matmul_tiling.h"

namespace maco::ops {

bool has_mates(const TileContext& c, const Cut& cut) {
  const int64_t K = c.in(0).cols;
  return cut.tile.size() > 2 &&
         may_halve(functions::matmul_method(cut.method), K, tiles_in(cut), c.machine()) &&
         c.may_mate("matmul");
}

namespace {

std::optional<TaskStage> tasks(TileContext&, const MatmulTiling& t) {
  if (!t.mates) return std::nullopt;
  TaskStage stage;
  stage.finishes = [](MatmulPart& own, int64_t part) {
    const int64_t half = (own.n1 - own.n0) / 2;
    own.own0 = own.n0 + part * half;
    own.own1 = own.own0 + half;
  };
  return stage;
}

}  // namespace

MatmulStage halve_stage() { return {.name = "halve", .tasks = tasks}; }

}  // namespace maco::ops
