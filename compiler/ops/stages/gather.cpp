// Stage gather: each rank begins with its own rows of an operand that is gathered, which are there
// first. The rule `gather` of `fuse` decides where; the attribute `gathered` says so.
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiling.h"

namespace maco::ops {

namespace {

std::optional<int32_t> first_block(const TileContext& c, const MatmulTiling& t) {
  if (pushed_to(c.graph(), c.id()) || !c.flag("gathered", false) ||
      !refuse_blocks(c, t.cut).empty())
    return std::nullopt;
  return 0;
}

std::optional<TaskStage> tasks(TileContext& c, const MatmulTiling& t) {
  if (!first_block(c, t)) return std::nullopt;
  TaskStage stage;
  stage.params = {{"ranks", c.world()}, {"T", t.count() / c.world()}};
  return stage;
}

}  // namespace

std::string refuse_to_gather(const TileContext& product) {
  return moves_as_made(product.op()) ? "the product sends its tiles"
                                     : refuse_blocks(product, product.cut());
}

MatmulStage gather_stage() {
  return {.name = "gather",
          .attrs = {{"gathered", AttrType::Bool, false, "false", {}, true}},
          .first_block = first_block,
          .tasks = tasks};
}

}  // namespace maco::ops
