// Stage norm: the rows of a are normed first, as rmsnorm does. Each task norms them for itself.
#include <fmt/format.h>

#include "compiler/functions/matmul.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"

namespace maco::ops {

namespace {

void check(InferContext& c, const MatmulInputs&, int first) {
  if (!ir::is_float(c.in(first).dtype) || !ir::is_float(c.in(0).dtype) ||
      c.in(first).shape != ir::Shape{c.in(0).shape.back()})
    c.error_in(first, "'matmul' needs weights of its norm for each element of a row");
}

std::string refuse_cut(const TileContext& c, const Cut&) {
  if (c.in(0).max_rows > functions::kMostNormedRows)
    return fmt::format("a product norms up to {} rows, not {}", functions::kMostNormedRows,
                       c.in(0).max_rows);
  return "";
}

}  // namespace

MatmulStage norm_stage() {
  return {.name = "norm",
          .attrs = {{"norm_eps", AttrType::Number, false, "", {}, true}},
          .inputs = 1,
          .check = check,
          .refuse_cut = refuse_cut,
          .params =
              [](TileContext& c, int first) {
                return std::vector<ir::Param>{{"G", c.in(first).dtype},
                                              {"eps", c.number("norm_eps", 0)}};
              },
          .reads = [](const TileContext& c, const MatmulPart&, int first,
                      int) { return read(whole(c.in(first))); }};
}

}  // namespace maco::ops
