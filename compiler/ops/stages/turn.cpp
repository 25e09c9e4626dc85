// Stage turn: heads of the result are rotated as by rope, while their sums are in registers. The
// input is the result of rope_sines.
#include <fmt/format.h>

#include "compiler/functions/matmul.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"

namespace maco::ops {

namespace {

void check(InferContext& c, const MatmulInputs& inputs, int first) {
  const int64_t d = c.integer("head_dim", 0), count = c.integer("turned", 0),
                begin = c.integer("first_turned", 0);
  const bool matrices = c.in(0).shape.size() == 2 && c.in(1).shape.size() == 2;
  const auto n =
      matrices ? c.in(1).shape[c.flag("transpose_b", false) ? 0 : 1].constant() : std::nullopt;
  if (inputs.bias || c.has("activation") || c.has("epilogue"))
    c.error("'matmul' turns heads of plain products");
  else if (!matrices)
    c.error("'matmul' turns heads of products of two matrices");
  else if (d < 2 || begin < 0 || count < 1 || !n || begin > *n - count || begin % d != 0 ||
           count % d != 0)
    c.error_attr("turned", fmt::format("'matmul' turns whole heads of its result, not {} columns "
                                       "from {} on, of heads of {}",
                                       count, begin, d));
  else if (c.in(first).dtype != ir::DType::F32 ||
           c.in(first).shape != ir::Shape{c.in(0).shape[0], ir::Expr(d)})
    c.error_in(first, fmt::format("'matmul' needs sines and cosines of each row, f32[{}, {}]",
                                  c.in(0).shape[0].str(), d));
}

std::string refuse_cut(const TileContext& c, const Cut& cut) {
  return refuse_part_of_sums(c, cut, "turns heads");
}

std::vector<ir::Param> params(TileContext& c, int) {
  const int64_t first = c.integer("first_turned", 0);
  return {{"D", c.integer("head_dim", 0)},
          {"turned_begin", first},
          {"turned_end", first + c.integer("turned", 0)},
          {"interleaved", c.flag("interleaved", false)}};
}

}  // namespace

MatmulStage turn_stage() {
  return {.name = "turn",
          .attrs = {{"turned", AttrType::Int, false, "", {}, true},
                    {"first_turned", AttrType::Int, false, "0", {}, true},
                    {"head_dim", AttrType::Int, false, "", {}, true},
                    {"interleaved", AttrType::Bool, false, "false", {}, true}},
          .inputs = 1,
          .check = check,
          .shape =
              [](const ir::Graph& graph, const ir::Op& op, MatmulShape& s) {
                s.heads =
                    attr_expr(graph, op, "head_dim").value_or(ir::Expr(0)).constant().value_or(0);
              },
          .refuse_cut = refuse_cut,
          .params = params,
          .reads =
              [](const TileContext& c, const MatmulPart& part, int first, int) {
                const Mat sines = c.in(first);
                return read(box(sines, part.r0, part.r1, 0, sines.cols));
              }};
}

std::string refuse_to_turn(const ir::Graph& graph, const ir::Op& op, int64_t head_dim,
                           const cost::Machine& machine) {
  MatmulShape turned = matmul_shape(graph, op);
  turned.heads = head_dim;
  return refuse_to_finish(
      matmul_shape(graph, op), turned,
      {.none = fmt::format("whole heads of {}", head_dim), .others = "that don't have whole heads"},
      machine);
}

}  // namespace maco::ops
