// How a matmul is cut into tasks: the parts that its tile rule and its stages share.
#include "compiler/ops/matmul_tiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/matmul_method.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/elementwise_rules.h"
#include "compiler/ops/tile_shape.h"
#include "ir/check.h"

namespace maco::ops {

using functions::matmul_method;
using ir::Body;
using ir::BodyArg;
using ir::DType;
using ir::Spread;

int32_t compute_sms(const TileContext& c) {
  int32_t count = 0;
  for (const ir::CtaRange& range : c.program().roles)
    if (range.role == ir::Role::Compute &&
        (range.ops.empty() ||
         std::find(range.ops.begin(), range.ops.end(), "matmul") != range.ops.end()))
      count += range.end - range.begin;
  return count > 0 ? count : c.machine().sms;
}

MatmulTiles tiles_in(const Cut& cut) {
  return {cut.tile[0], cut.tile[1], cut.tile.size() > 2 ? cut.tile[2] : 0};
}

ir::Region rows_of(const Mat& m, const ir::Block& block, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
  ir::Region region = box(m, r0, r1, c0, c1);
  region.block = block;
  return region;
}

std::string refuse_part_of_sums(const TileContext& c, const Cut& cut, std::string_view does) {
  if (matmul_method(cut.method).only_tensor_cores() &&
      matmul_parts(c.in(0).cols, tiles_in(cut)) == 1)
    return "";
  return fmt::format("a product that {} takes method 'mma' or 'wgmma', and all of K in a tile",
                     does);
}

namespace {

// The computation between a sum and its rounding and storing: bias, activation and the op's
// epilogue. Bias and activation don't round.
ir::BodyParam whole_epilogue(TileContext& c, const MatmulInputs& inputs,
                             const std::optional<Body>& own, DType acc) {
  const DType result = c.out(0).dtype;
  ir::BodyParam whole{{}, {{Spread::Accumulator, acc}}};
  const int sums = inputs.sums;
  if (sums > 1) whole.operands.push_back(whole.operands[0]);
  BodyArg sum = BodyArg::operand(0);
  const auto step = [&](std::string function, std::vector<BodyArg> args) {
    sum = BodyArg::step(static_cast<int>(whole.body.steps.size()));
    whole.body.steps.push_back({std::move(function), std::move(args), acc});
  };
  if (inputs.bias) {
    whole.operands.push_back({Spread::Column, c.in(inputs.bias_at).dtype});
    step("add", {sum, BodyArg::operand(1)});
  }
  const std::string activation = c.word("activation", "none");
  if (activation != "none") step(activation, {sum});
  if (!own) {
    if (whole.body.steps.empty()) step("copy", {sum});
    whole.body.steps.back().dtype = result;
    return whole;
  }
  const BodyArg product = sum;
  const int first_operand = static_cast<int>(whole.operands.size()) - sums,
            first_step = static_cast<int>(whole.body.steps.size());
  const ir::Shape& out = c.shape(c.op().out[0]);
  for (int i = inputs.epilogue_first; i < static_cast<int>(c.op().in.size()); ++i) {
    const auto spread = spread_of(out, c.shape(c.op().in[static_cast<size_t>(i)]));
    MACO_CHECK(spread, c.op().name);
    whole.operands.push_back({*spread, c.in(i).dtype});
  }
  for (ir::BodyStep s : own->steps) {
    for (BodyArg& a : s.args) {
      if (a.kind == BodyArg::Kind::Operand)
        a = a.index == 0 ? product : a.index < sums ? a : BodyArg::operand(a.index + first_operand);
      else if (a.kind == BodyArg::Kind::Step)
        a.index += first_step;
    }
    whole.body.steps.push_back(std::move(s));
  }
  return whole;
}

// A body that stores the sum unchanged.
const ir::BodyParam kPlainSum = {{{{"copy", {BodyArg::operand(0)}, DType::F32}}},
                                 {{Spread::Accumulator, DType::F32}}};

}  // namespace

std::vector<ir::Load> loads_of(const TileContext& c, const functions::MatmulLoads& matmul) {
  std::vector<ir::Load> loads;
  // Pages of a paired matmul's matrices alternate, so that both or neither come ahead.
  const auto ahead = [&](uint32_t operand) {
    return c.in(static_cast<int>(operand)).is_param &&
           (matmul.sums == 1 || operand == 0 || (c.in(1).is_param && c.in(2).is_param));
  };
  for (uint32_t operand = 0; operand < (matmul.sums > 1 ? 3u : 2u); ++operand)
    if (const auto rule = functions::matmul_load(matmul, operand))
      loads.push_back({.operand = operand,
                       .pages = rule->pages,
                       .page_bytes = matmul.page_bytes,
                       .box = rule->box,
                       .ahead = ahead(operand)});
  return loads;
}

MatmulTiling tiling_of(TileContext& c) {
  MatmulTiling t;
  t.a = c.in(0), t.b = c.in(1), t.y = c.out(0);
  t.inputs = matmul_inputs(c.op());
  const auto body = epilogue_of(c.op());
  MACO_CHECK(!body || body->dtype() == t.y.dtype, c.op().name);
  t.epilogue = whole_epilogue(c, t.inputs, body, ir::is_float(t.a.dtype) ? DType::F32 : DType::I32);
  const std::string why = ir::check_body(t.epilogue);
  MACO_CHECK(why.empty(), why);
  t.plan = t.a.rows;
  t.cut = c.cut();
  t.tiles = tiles_in(t.cut);
  t.parts = matmul_parts(t.a.cols, t.tiles);
  t.mates = has_mates(c, t.cut);
  if (!t.merged()) t.own = static_cast<int>(c.op().in.size());

  const bool transpose = c.flag("transpose_b", false);
  functions::MatmulLoads& loads = t.loads;
  loads = {.method = &matmul_method(t.cut.method),
           .N = t.y.cols,
           .K = t.a.cols,
           .BM = t.tiles.BM,
           .BN = t.tiles.BN,
           .BK = t.parts > 1 ? t.tiles.BK : t.a.cols,
           .transpose_b = transpose,
           .fixed_rows = !t.a.dynamic(),
           .all_there = has_all_rows(c.graph()[c.op().in[0]]),
           .page_bytes = c.machine().page_bytes,
           .a_bytes = ir::size_of(t.a.dtype),
           .b_bytes = ir::size_of(t.b.dtype),
           .few_rows =
               functions::matmul_few_rows(t.a.dtype, t.b.dtype, t.a.cols, transpose, c.machine()),
           .sums = t.inputs.sums};
  const ir::Interval rows = c.range(t.plan);
  loads.lone = !t.a.dynamic() && t.a.max_rows == 1 && rows.lo == 1 && rows.hi == 1;
  loads.in_line = functions::matmul_better_in_line(loads, c.machine());
  loads.boxes =
      c.machine().has_boxes() && !loads.in_line && functions::matmul_few_box(loads).has_value();
  loads.blocks = functions::matmul_takes_blocks(loads, t.a.dtype == t.b.dtype, c.machine());
  loads.mates = t.mates;
  int64_t& scratch = c.program().uses.scratch_bytes;
  if (loads.in_line)
    scratch = std::max(scratch, functions::matmul_line_scratch(t.a.cols, c.machine()));
  // A long lone row lies in the scratch memory as a whole, with zeros up to the end of the last
  // box.
  const int64_t depth = loads.boxes ? functions::matmul_few_box(loads)->cols : 1;
  const int64_t row_bytes = (t.a.cols + depth - 1) / depth * depth * loads.a_bytes;
  if (loads.boxes && loads.few_rows == functions::kMostFewRows && rows.lo <= 1 &&
      row_bytes <= functions::matmul_most_scratch(c.machine()))
    scratch = std::max(scratch, row_bytes);
  return t;
}

std::vector<ir::Param> params_of(TileContext& c, const MatmulTiling& t, DType sum) {
  return {{"X", t.a.dtype},
          {"W", t.b.dtype},
          {"Y", sum},
          c.value("rows", t.a.rows),
          c.value("plan_rows", t.plan),
          {"method", ir::Word{t.cut.method}},
          {"slice", functions::matmul_slice(t.y.cols)},
          {"few_rows", t.loads.few_rows},
          {"N", t.y.cols},
          {"K", t.a.cols},
          {"BM", t.tiles.BM},
          {"BN", t.tiles.BN},
          {"BK", t.loads.BK},
          {"transpose_b", t.loads.transpose_b},
          {"boxes", t.loads.boxes},
          {"in_line", t.loads.in_line},
          {"blocks", t.loads.blocks},
          {"epilogue", t.merged() ? kPlainSum : t.epilogue}};
}
std::vector<ir::Access> reads_of(const TileContext& c, const MatmulTiling& t,
                                 const MatmulPart& part) {
  std::vector<ir::Access> accesses = {
      read(rows_of(t.a, part.block, part.r0, part.r1, 0, t.a.cols)),
      read(t.loads.transpose_b ? box(t.b, part.n0, part.n1, 0, t.b.cols)
                               : box(t.b, 0, t.b.max_rows, part.n0, part.n1))};
  const MatmulInputs& inputs = t.inputs;
  for (const StageUse& use : inputs.stages)
    for (int k = 0; k < use.stage->inputs; ++k)
      accesses.push_back(use.stage->reads(c, part, use.first, k));
  for (int i = inputs.bias_at; i < t.own; ++i) {
    const Mat m = c.in(i);
    if (i < inputs.epilogue_first) {
      accesses.push_back(read(box(m, 0, 1, part.own0, part.own1)));
      continue;
    }
    switch (*spread_of(c.shape(c.op().out[0]), c.shape(c.op().in[static_cast<size_t>(i)]))) {
      case Spread::Full:
        accesses.push_back(read(rows_of(m, part.block, part.r0, part.r1, part.own0, part.own1)));
        break;
      case Spread::Column: accesses.push_back(read(box(m, 0, 1, part.own0, part.own1))); break;
      default: accesses.push_back(read(whole(m)));
    }
  }
  return accesses;
}

std::string refuse_blocks(const TileContext& c, const Cut& cut) {
  // Each SM needs at least so many tiles of the rank's own: the first tiles that wait for other
  // ranks then begin when what they wait for has come (docs/notebook/communication.md).
  constexpr double kLeast = 1.5;
  const MatmulTiles tiles = tiles_in(cut);
  const Mat a = c.in(0), y = c.out(0);
  if (!matmul_method(cut.method).tensor_cores)
    return fmt::format("the product takes method '{}'", cut.method);
  for (const StageUse& use : matmul_stages_of(c.op()))
    if (!use.stage->in_blocks)
      return fmt::format("the product has stage '{}' besides", use.stage->name);
  if (matmul_parts(a.cols, tiles) > 1) return "tasks of the product have a part of K each";
  if (a.dynamic()) return "dims decide the product's rows";
  if (a.max_rows % (c.world() * tiles.BM) != 0)
    return fmt::format("{} rows aren't whole tiles of {} for each rank", a.max_rows, tiles.BM);
  const int64_t own = a.max_rows / c.world() / tiles.BM * tiles_of(y.cols, tiles.BN);
  if (static_cast<double>(own) < kLeast * compute_sms(c))
    return fmt::format("a rank's rows have {} tiles, too few for {} SMs", own, compute_sms(c));
  return "";
}

}  // namespace maco::ops
