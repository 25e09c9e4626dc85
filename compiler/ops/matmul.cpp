// matmul: a[M,K] b[K,N] (or b[N,K]), plus bias[N], through an activation. A fused epilogue
// (ir/body.h) continues from there.
//
// A tile is BM x BN elements of the result and covers all of K. If there are too few such tiles for
// the SMs, tiles cover a part of K: then tasks behind them add the parts' sums in order, and do the
// epilogue. The tile's slices of b come through pages, which the loader fills ahead of time if b is
// a parameter. How K is summed depends on the number of rows as the user wrote it.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/matmul.h"
#include "compiler/ops/by_rows.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/elementwise_rules.h"
#include "compiler/ops/families.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/tile_shape.h"
#include "ir/body.h"
#include "ir/check.h"

namespace maco::ops {

using functions::matmul_method;
using ir::Body;
using ir::BodyArg;
using ir::DType;
using ir::Spread;

namespace {

// SMs that compute matrix products.
int32_t compute_sms(const TileContext& c) {
  int32_t count = 0;
  for (const ir::CtaRange& range : c.program().roles)
    if (range.role == ir::Role::Compute &&
        (range.ops.empty() ||
         std::find(range.ops.begin(), range.ops.end(), "matmul") != range.ops.end()))
      count += range.end - range.begin;
  return count > 0 ? count : c.machine().sms;
}

MatmulShape shape_of(const TileContext& c) {
  const Mat a = c.in(0), b = c.in(1);
  MatmulShape s;
  s.max_rows = a.max_rows;
  s.min_rows = a.min_rows;
  s.typical_rows = c.typical(a.rows);
  s.plan_rows = c.range(a.rows);
  s.N = c.out(0).cols;
  s.K = a.cols;
  s.a = a.dtype;
  s.b = b.dtype;
  s.y = matmul_sum_dtype(c.op(), c.out(0).dtype);
  s.all_there = has_all_rows(c.graph()[c.op().in[0]]);
  s.transpose_b = c.flag("transpose_b", false);
  shape_of_stages(c.graph(), c.op(), s);
  s.sent = pushed_to(c.graph(), c.id()).has_value();
  return s;
}

MatmulTiles tiles_in(const Cut& cut) {
  return {cut.tile[0], cut.tile[1], cut.tile.size() > 2 ? cut.tile[2] : 0};
}

}  // namespace

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

bool is_halved(const TileContext& c, const Cut& cut) {
  const int64_t K = c.in(0).cols;
  return cut.tile.size() > 2 &&
         may_halve(matmul_method(cut.method), K, tiles_in(cut), c.machine()) &&
         c.may_mate("matmul");
}

namespace {

Cut choose(const TileContext& c) {
  const MatmulShape s = shape_of(c);
  const std::string given = cut_of(c.op()).method;
  const MatmulMethod& method = !given.empty() ? matmul_method(given)
                               : sends_few_rows_in_tiles(c.graph(), c.op(), c.machine())
                                   ? functions::method_of_sent_tiles()
                                   : functions::choose_matmul_method(s, c.machine());
  const auto tiles = choose_matmul_tiles(s, method, c.machine(), compute_sms(c));
  // For a method that takes no tile here, any tile will do: refuse_cut then says why.
  const MatmulTiles t = tiles.value_or(MatmulTiles{});
  Cut cut{method.name(), {t.BM, t.BN}};
  if (t.BK > 0) cut.tile.push_back(t.BK);
  return cut;
}
std::string refuse_method(const std::string& stage, const MatmulMethod& method) {
  std::vector<std::string> others;
  for (const MatmulMethod* other : functions::matmul_method_rows())
    if (functions::takes_stage(other->code, stage))
      others.push_back(fmt::format("'{}'", other->name()));
  return fmt::format("a product with stage '{}' takes method {}, not '{}'", stage,
                     fmt::join(others, " or "), method.name());
}
std::string refuse_cut(const TileContext& c, const Cut& cut) {
  const MatmulMethod& method = matmul_method(cut.method);
  for (const StageUse& use : matmul_stages_of(c.op()))
    if (!functions::takes_stage(method.code, use.stage->name))
      return refuse_method(use.stage->name, method);
  for (const StageUse& use : matmul_stages_of(c.op()))
    if (use.stage->refuse_cut)
      if (std::string why = use.stage->refuse_cut(c, cut); !why.empty()) return why;
  if (const auto to = pushed_to(c.graph(), c.id())) {
    const ir::Op& collective = c.graph()[*to];
    const bool in_packets =
        method.few && is_one_shot_sum(collective) && ir::is_float(c.out(0).dtype);
    const bool shares = matmul_parts(c.in(0).cols, tiles_in(cut)) > 1;
    if (!in_packets && (!method.only_tensor_cores() ||
                        !may_send(shape_of(c), method, tiles_in(cut), c.machine()) ||
                        (shares && !c.may_mate("matmul"))))
      return "a product that sends its tiles takes method 'mma' or 'wgmma', and all of K in a "
             "tile or halves that mates have, or for a one-shot allreduce of floats method 'dot'";
  }
  return refuse_matmul(shape_of(c), method, tiles_in(cut), c.machine());
}

std::string slow(const TileContext& c, const Cut& cut) {
  const MatmulShape s = shape_of(c);
  const MatmulMethod& method = matmul_method(cut.method);
  constexpr int64_t kMuch = 256 * 256 * 256;  // multiplications
  if (method.few || s.max_rows * s.N * s.K < kMuch || !c.machine().has_mma(ir::DType::BF16))
    return "";
  const int64_t chunk = 16 / ir::size_of(s.a);
  if (method.tensor_cores && !method.boxes && c.machine().has_wgmma()) {
    const std::pair<const char*, int64_t> rows[] = {{"K", s.K}, {"N", s.N}};
    for (const auto& [axis, n] : rows)
      if (n % chunk != 0 && (axis[0] == 'K' || !s.transpose_b))
        return fmt::format(
            "runs by method 'mma', not 'wgmma': {0} = {1} isn't a multiple of {2}; "
            "pad it to {3}",
            axis, n, chunk, (n + chunk - 1) / chunk * chunk);
  }
  if (!method.blocks) return "";
  const auto runs = [](const std::string& why) { return "runs without tensor cores: " + why; };
  const auto is_eight = [](ir::DType t) {
    return t == ir::DType::F8E4M3 || t == ir::DType::F8E5M2;
  };
  if (!ir::is_float(s.a) || !ir::is_float(s.b)) return "";  // the same sums can't be had elsewhere
  if (s.a != s.b)
    return runs(
        fmt::format("it multiplies {} by {}; cast one of them", ir::name(s.a), ir::name(s.b)));
  if (s.a == ir::DType::F32) return runs("its operands are f32; cast them to bf16 or f16");
  if (!c.machine().has_mma(s.a))
    return runs(
        fmt::format("the target has none for {}; cast its operands to bf16 or f16", ir::name(s.a)));
  if (is_eight(s.a) && !s.transpose_b)
    return runs(
        fmt::format("{} is multiplied with transpose_b only; give b as [N,K]", ir::name(s.a)));
  if (is_eight(s.a) && s.y == ir::DType::F32)
    return runs(fmt::format("{} gives no f32 there; write dtype = bf16", ir::name(s.a)));
  return "";
}

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

// How the operands come through pages: ahead of the task's waits if nobody writes them.
std::vector<ir::Load> loads_of(const TileContext& c, const functions::MatmulLoads& matmul) {
  std::vector<ir::Load> loads;
  // Pages of a paired matmul's matrices alternate, so that both or neither come ahead.
  const auto ahead = [&](uint32_t operand) {
    return c.in(static_cast<int>(operand)).is_param &&
           (!matmul.paired || operand == 0 || (c.in(1).is_param && c.in(2).is_param));
  };
  for (uint32_t operand = 0; operand < (matmul.paired ? 3u : 2u); ++operand)
    if (const auto rule = functions::matmul_load(matmul, operand))
      loads.push_back({.operand = operand,
                       .pages = rule->pages,
                       .page_bytes = matmul.page_bytes,
                       .box = rule->box,
                       .ahead = ahead(operand)});
  return loads;
}

// A body that stores the sum unchanged.
const ir::BodyParam kPlainSum = {{{{"copy", {BodyArg::operand(0)}, DType::F32}}},
                                 {{Spread::Accumulator, DType::F32}}};

// A matrix for the sums over one part of K.
Mat part_of(TileContext& c, const Mat& y, std::string suffix) {
  Mat part = y;
  part.dtype = DType::F32;
  part.buffer = c.rows_buffer(std::move(suffix), DType::F32, y.rows, y.max_rows, y.cols);
  return part;
}
// The blocks in which parts are added up, about one for each SM: the next op waits for the last
// block.
TileShape merge_block(const TileContext& c, const Mat& y) {
  constexpr int64_t kLeast = 256;  // elements
  const int64_t sms = compute_sms(c);
  const int64_t elements = std::max(kLeast, (y.max_elements() + sms - 1) / sms);
  TileShape t = tile_matrix(y.max_rows, y.cols, elements);
  // Fewer rows, if the block is too large.
  t.bm = std::min(t.bm, std::max<int64_t>((elements / t.bn + 7) / 8 * 8, 8));
  return t;
}

// Adds up the parts in order, and does what the epilogue does with one sum.
void merge_parts(TileContext& c, const ir::BodyParam& epilogue, const std::vector<Mat>& parts,
                 const Mat& y) {
  const int added = static_cast<int>(parts.size()) - 1;  // additions; the next operand's index
  ir::BodyParam body;
  std::vector<Mat> in = parts;
  body.operands.assign(parts.size(), {Spread::Full, DType::F32});
  for (int i = 0; i < added; ++i)
    body.body.steps.push_back(
        {"add",
         {i == 0 ? BodyArg::operand(0) : BodyArg::step(i - 1), BodyArg::operand(i + 1)},
         DType::F32});
  body.operands.insert(body.operands.end(), epilogue.operands.begin() + 1, epilogue.operands.end());
  for (size_t i = 2; i < c.op().in.size(); ++i) in.push_back(c.in(static_cast<int>(i)));
  for (ir::BodyStep step : epilogue.body.steps) {
    for (BodyArg& arg : step.args) {
      if (arg.kind == BodyArg::Kind::Step)
        arg.index += added;
      else if (arg.kind == BodyArg::Kind::Operand)
        arg = arg.index == 0 ? BodyArg::step(added - 1) : BodyArg::operand(arg.index + added);
    }
    body.body.steps.push_back(std::move(step));
  }
  tile_body(c, body, in, y, merge_block(c, y));
}

// How a matmul is cut into tasks.
struct Tiling {
  Mat a, b, y;
  MatmulInputs inputs;
  ir::BodyParam epilogue;
  ir::Expr plan;
  Cut cut;
  MatmulTiles tiles;
  int64_t parts = 1;
  bool halved = false;
  int own = 2;  // inputs of a task
  functions::MatmulLoads loads;

  bool merged() const { return parts > 1 && !halved; }
  int64_t across() const { return tiles_of(y.cols, tiles.BN); }
  int64_t count() const { return tiles_of(a.max_rows, tiles.BM) * across(); }
  // Calls f(r, n) with the first row and column of each tile of `rows` rows. Tiles that run at the
  // same time share rows of a and columns of b, which then come from the GPU's cache. So tiles come
  // in groups of several rows of tiles, column by column.
  template <class F>
  void each_tile(int64_t rows, F f) const {
    constexpr int64_t kRowsAtOnce = 16;
    const int64_t at_once = kRowsAtOnce * tiles.BM;
    for (int64_t first = 0; first < rows; first += at_once)
      for (int64_t n = 0; n < y.cols; n += tiles.BN)
        for (int64_t r = first; r < std::min(rows, first + at_once); r += tiles.BM) f(r, n);
  }
  int64_t tile_at(int64_t r, int64_t n) const { return r / tiles.BM * across() + n / tiles.BN; }
};

Tiling tiling_of(TileContext& c) {
  Tiling t;
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
  t.halved = is_halved(c, t.cut);
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
           .paired = t.inputs.sums > 1};
  const ir::Interval rows = c.range(t.plan);
  loads.lone = !t.a.dynamic() && t.a.max_rows == 1 && rows.lo == 1 && rows.hi == 1;
  loads.in_line = functions::matmul_better_in_line(loads, c.machine());
  loads.boxes =
      c.machine().has_boxes() && !loads.in_line && functions::matmul_few_box(loads).has_value();
  loads.blocks = functions::matmul_takes_blocks(loads, t.a.dtype == t.b.dtype, c.machine());
  loads.halved = t.halved;
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

// The parameters of a call whose sums go to a tensor of type `sum`.
std::vector<ir::Param> params_of(TileContext& c, const Tiling& t, DType sum) {
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
void add_push_params(const TileContext& c, const Tiling& t, const functions::Exchange& exchange,
                     std::vector<ir::Param>& params) {
  for (ir::Param& p : functions::push_params_of(exchange)) params.push_back(std::move(p));
  // With few tiles for each SM the last tiles would only come later
  // (docs/notebook/communication.md).
  constexpr int64_t kFewEach = 3;
  params.push_back(
      {"behind", !exchange.packets && !t.halved && t.count() > kFewEach * int64_t{compute_sms(c)}});
}

// What a task reads. Parts take blocks of K in turn.
std::vector<ir::Access> reads_of(const TileContext& c, const Tiling& t, const MatmulPart& part) {
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

// Why a matmul with this cut can't have a block of rows for each rank, each of many tiles, or "".
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

void tile(TileContext& c) {
  const Tiling t = tiling_of(c);
  const Mat &a = t.a, &y = t.y;
  const int64_t bm = t.tiles.BM, bn = t.tiles.BN;
  const MatmulInputs& inputs = t.inputs;
  // Where tiles also go, if the matmul pushes a collective's operand.
  const auto collective = pushed_to(c.graph(), c.id());
  const bool gathered = !collective && c.flag("gathered", false) && refuse_blocks(c, t.cut).empty();
  const bool blocks = collective && adds_up(TileContext(c).beside(*collective));
  // What takes the sums: the result, or one matrix for each part, from which merge_parts makes the
  // result.
  const int64_t merges = t.merged() ? body_tasks(y, merge_block(c, y)) : 0;
  c.announce_all((blocks ? t.count() / c.world() * (c.world() - 1) : t.count() * t.parts) + merges);
  std::vector<Mat> sums = {y};
  if (t.merged()) {
    sums.clear();
    for (int64_t part = 0; part < t.parts; ++part)
      sums.push_back(part_of(c, y, fmt::format("part{}", part)));
  }
  std::optional<Pushed> push;
  if (collective) {
    TileContext beside = c.beside(*collective);
    push = begin_push(beside);
  }
  std::vector<std::string> stages;
  std::vector<ir::BufferId> results;  // behind the sums
  std::vector<ir::Param> more;        // parameters of stages
  for (const StageUse& use : inputs.stages) {
    stages.push_back(use.stage->name);
    if (use.stage->params)
      for (ir::Param& p : use.stage->params(c, use.first)) more.push_back(std::move(p));
    if (use.stage->results)
      for (ir::BufferId b : use.stage->results(c)) results.push_back(b);
  }
  if (push) {
    stages.emplace_back("send");
    results.push_back(push->slots);
    add_push_params(c, t, push->exchange, more);
  }
  if (gathered) {
    stages.emplace_back("gather");
    more.push_back({"ranks", c.world()});
    more.push_back({"T", t.count() / c.world()});
  }
  if (t.halved) stages.emplace_back("halve");
  std::vector<ir::CallId> calls;
  for (const Mat& sum : sums) {
    std::vector<ir::BufferId> operands;
    for (int i = 0; i < t.own; ++i) operands.push_back(c.in(i).buffer);
    const auto at = operands.insert(operands.begin() + inputs.bias_at, sum.buffer);
    operands.insert(at + 1, results.begin(), results.end());
    std::vector<ir::Param> params = params_of(c, t, sum.dtype);
    params.insert(params.end(), more.begin(), more.end());
    calls.push_back(c.call_with("matmul", stages, std::move(params), std::move(operands),
                                loads_of(c, t.loads)));
    // The tile that is pushed is the one that is stored, the last but one of the task's accesses.
    if (push) {
      const auto sent = static_cast<uint32_t>(t.own);
      c.moves(calls.back(), {{.kind = ir::Transfer::Kind::Copy, .from = {sent + 1}, .to = {sent}}});
    }
  }
  std::function<std::vector<ir::Access>(const MatmulPart&)> writes;
  for (const StageUse& use : inputs.stages)
    if (use.stage->writer) writes = use.stage->writer(c, y);
  const auto product = [&](uint32_t index, int64_t r, int64_t n, int64_t part, ir::Block block) {
    if (push) block = functions::push_block_of(c.program()[calls[0]], push->exchange, index);
    MatmulPart own{block, r, r + bm, n, n + bn, n, n + bn};
    if (t.halved) own.own0 = n + part * bn / 2, own.own1 = own.own0 + bn / 2;
    std::vector<ir::Access> accesses = reads_of(c, t, own);
    const auto at = static_cast<size_t>(t.merged() ? part : 0);
    if (push)
      accesses.push_back(
          functions::push_access_of(c.program(), push->slots, push->exchange, index));
    if (writes)
      for (ir::Access& written : writes(own)) accesses.push_back(written);
    else if (own.own0 < y.cols)
      accesses.push_back(write(rows_of(sums[at], block, r, r + bm, own.own0, own.own1)));
    const ir::TaskId task = c.task(calls[at], index, std::move(accesses));
    if (push)
      c.signal(task, push->arrived[index % push->arrived.size()],
               functions::peer_of(push->exchange, index));
  };
  if (blocks || gathered) {
    // With a gathered operand each rank begins with its own rows, which are there first. With sums
    // a rank begins with the rows that the next rank adds up. Its own rows come last (add_up), when
    // the other ranks' parts have arrived.
    const int64_t world = c.world(), rows = a.max_rows / world, own = t.count() / world;
    for (int64_t step = blocks ? 1 : 0, first = 0; step < world; ++step, first += own) {
      const auto shift = static_cast<int32_t>(step);
      const ir::Block block{step == 0 ? ir::RankRef::self() : ir::RankRef::shift(shift), rows, {}};
      t.each_tile(rows, [&](int64_t r, int64_t n) {
        product(static_cast<uint32_t>(first + t.tile_at(r, n)), r, n, 0, block);
      });
    }
    return;
  }
  t.each_tile(a.max_rows, [&](int64_t r, int64_t n) {
    const int64_t tile = t.tile_at(r, n);
    for (int64_t part = 0; part < t.parts; ++part)
      product(static_cast<uint32_t>(t.halved ? 2 * tile + part : part * t.count() + tile), r, n,
              part, {});
  });
  if (t.merged()) merge_parts(c, t.epilogue, sums, y);
}

// Whether a pushed matmul with this cut can add up.
bool may_add(const TileContext& c, const Cut& cut) {
  constexpr int64_t kMostRanks = 8;  // a thread holds some elements of each rank
  const auto kept = [&](ir::TensorId t) { return c.graph()[t].kind != ir::TensorKind::State; };
  return refuse_blocks(c, cut).empty() && matmul_stages_of(c.op()).empty() &&
         c.world() <= kMostRanks && std::all_of(c.op().in.begin(), c.op().in.end(), kept);
}

}  // namespace

bool adds_up(const TileContext& collective) {
  return is_pushed(collective.op()) && may_add_up(collective);
}
bool may_add_up(const TileContext& collective) {
  const auto product = product_of(collective.graph(), collective.op());
  if (!product || collective.op().kind != "allreduce" ||
      collective.word("algorithm", "auto") != "twoshot" ||
      collective.in(0).dtype != collective.out(0).dtype)
    return false;
  const TileContext beside = TileContext(collective).beside(*product);
  return may_add(beside, beside.cut());
}

std::string refuse_to_gather(const TileContext& product) {
  return is_pushed(product.op()) ? "the product sends its tiles"
                                 : refuse_blocks(product, product.cut());
}

void add_up(TileContext& c, const Sums& sums) {
  TileContext product = c.beside(*product_of(c.graph(), c.op()));
  const Tiling t = tiling_of(product);
  std::vector<ir::BufferId> operands;
  for (int i = 0; i < t.own; ++i) operands.push_back(product.in(i).buffer);
  const Mat x = c.in(0), y = c.out(0);
  const ir::BufferId more[] = {y.buffer, sums.to_all, sums.parts, x.buffer};
  operands.insert(operands.begin() + t.inputs.bias_at, std::begin(more), std::end(more));
  std::vector<ir::Param> params = params_of(product, t, y.dtype);
  add_push_params(product, t, sums.exchange, params);
  params.push_back({"reduce", ir::Word{std::string(name(sums.exchange.reduce))}});
  const ir::CallId call = c.call_with("matmul", {"send", "add"}, std::move(params),
                                      std::move(operands), loads_of(product, t.loads));
  const auto parts = static_cast<uint32_t>(t.own);
  c.moves(call, {{.kind = ir::Transfer::Kind::Reduce,
                  .reduce = sums.exchange.reduce,
                  .from = {parts + 1, parts},
                  .to = {parts + 3, parts + 2}}});
  c.announce(t.count() / c.world());
  t.each_tile(t.a.max_rows / c.world(), [&](int64_t r, int64_t n) {
    const auto tile = static_cast<uint32_t>(t.tile_at(r, n));
    const ir::Block block = functions::push_block_of(c.program()[call], sums.exchange, tile);
    const int64_t bm = t.tiles.BM, bn = t.tiles.BN;
    std::vector<ir::Access> accesses =
        reads_of(product, t, {block, r, r + bm, n, n + bn, n, n + bn});
    accesses.push_back(functions::sum_access_of(c.program(), sums.parts, sums.exchange, tile));
    accesses.push_back(write(rows_of(x, block, r, r + bm, n, n + bn)));
    accesses.push_back(functions::push_access_of(c.program(), sums.to_all, sums.exchange, tile));
    accesses.push_back(write(rows_of(y, block, r, r + bm, n, n + bn)));
    const ir::TaskId task = c.task(call, tile, std::move(accesses));
    c.wait(task, sums.parts_of[tile], ir::RankRef::others());
    c.signal(task, sums.sums_of[tile], ir::RankRef::others());
  });
}

std::string register_matmul_method(MatmulMethod method) {
  const std::string name = method.name();
  if (std::string why = functions::add_matmul_method(std::move(method)); !why.empty()) return why;
  add_method("matmul", name);
  return "";
}

std::vector<OpDef> matmul_ops() {
  OpDef d;
  d.kind = "matmul";
  d.summary = "matrix product, with bias and activation";
  d.min_in = 2;
  d.max_in = 3;  // and operands of an epilogue, which passes add
  d.attrs = {{"transpose_b", AttrType::Bool, false, "false", {}, false},
             {"activation", AttrType::Word, false, "none", {"none", "relu", "silu", "gelu"}, false},
             {"epilogue", AttrType::Word, false, "", {}, true},
             {"pushed", AttrType::Bool, false, "false", {}, true},
             {"gathered", AttrType::Bool, false, "false", {}, true}};
  for (const MatmulStage& stage : matmul_stages())
    d.attrs.insert(d.attrs.end(), stage.attrs.begin(), stage.attrs.end());
  d.passes_add = [](const ir::Op& op) {
    OpDef::Added added;
    for (const StageUse& use : matmul_stages_of(op)) {
      added.inputs |= use.stage->inputs > 0;
      added.outputs |= use.stage->more;
    }
    return added;
  };
  // An epilogue reads each element where it writes it; all tiles read the other operands.
  d.in_place = [](const ir::Op& op, ir::TensorId out) {
    if (op.attrs.count("epilogue") == 0) return false;
    const auto own = op.in.begin() + matmul_inputs(op).epilogue_first;
    return std::find(op.in.begin(), own, out) == own;
  };
  d.infer = infer_matmul;
  for (const MatmulMethod* method : functions::matmul_method_rows())
    d.methods.push_back(method->name());
  d.tile_axes = {"rows", "columns", "of K"};
  d.spare_axes = 1;
  d.choose = choose;
  d.slow = slow;
  d.refuse_cut = refuse_cut;
  d.tile = tile;
  // An epilogue's operands that have the result's shape have its rows.
  d.refuse_stage = [](const ir::Graph& graph, const ir::Op& op, const std::vector<bool>& cut) {
    std::vector<bool> others = cut;
    for (size_t i = 2; i < cut.size(); ++i)
      if (graph[op.in[i]].shape == graph[op.out[0]].shape) others[i] = false;
    return by_whole_rows(graph, op, others);
  };
  return {d};
}

}  // namespace maco::ops
