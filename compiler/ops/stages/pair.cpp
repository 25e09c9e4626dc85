// Stage pair: a is multiplied by two matrices of one shape, and the epilogue gets both sums.
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"

namespace maco::ops {

namespace {

void check(InferContext& c, const MatmulInputs& inputs, int first) {
  if (!c.flag("transpose_b", false) || !c.has("epilogue") || inputs.bias || c.has("activation") ||
      c.in(first).dtype != c.in(1).dtype || c.in(first).shape != c.in(1).shape)
    c.error(
        "a pair of products in 'matmul' needs transpose_b, second operands of one type and shape, "
        "and an epilogue, without bias and activation");
}

}  // namespace

MatmulStage pair_stage() {
  return {.name = "pair",
          .attrs = {{"paired", AttrType::Bool, false, "false", {}, true}},
          .inputs = 1,
          .sums = 2,
          .in_blocks = true,
          .check = check,
          .shape = [](const ir::Graph&, const ir::Op&, MatmulShape& s) { s.sums = 2; },
          .reads =
              [](const TileContext& c, const MatmulPart& part, int first, int) {
                const Mat other = c.in(first);
                return read(box(other, part.n0, part.n1, 0, other.cols));
              }};
}

}  // namespace maco::ops
