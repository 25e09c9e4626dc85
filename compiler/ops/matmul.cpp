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
#include "compiler/ops/elementwise.h"
#include "compiler/ops/elementwise_rules.h"
#include "compiler/ops/families.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/matmul_tiling.h"
#include "compiler/ops/tile_shape.h"
#include "ir/body.h"
#include "ir/check.h"

namespace maco::ops {

using functions::matmul_method;
using ir::BodyArg;
using ir::DType;
using ir::Spread;

namespace {

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
  for (const MatmulStage& stage : matmul_stages())
    if (stage.asks) stage.asks(c, s);
  return s;
}

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
  for (const MatmulStage& stage : matmul_stages())
    if (stage.tasks && stage.refuse_cut)
      if (std::string why = stage.refuse_cut(c, cut); !why.empty()) return why;
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

void tile(TileContext& c) {
  const MatmulTiling t = tiling_of(c);
  const Mat &a = t.a, &y = t.y;
  const int64_t bm = t.tiles.BM, bn = t.tiles.BN, world = c.world();
  const std::vector<MatmulStage> all = matmul_stages();
  std::optional<int32_t> first_block;
  for (const MatmulStage& stage : all)
    if (stage.first_block && !first_block) first_block = stage.first_block(c, t);
  // What takes the sums: the result, or one matrix for each part, from which merge_parts makes the
  // result.
  const int64_t merges = t.merged() ? body_tasks(y, merge_block(c, y)) : 0;
  c.announce_all((first_block ? t.count() / world * (world - *first_block) : t.count() * t.parts) +
                 merges);
  std::vector<Mat> sums = {y};
  if (t.merged()) {
    sums.clear();
    for (int64_t part = 0; part < t.parts; ++part)
      sums.push_back(part_of(c, y, fmt::format("part{}", part)));
  }
  std::vector<TaskStage> own_stages;  // that follow from neighbours and from the cut
  std::vector<std::string> own_names;
  for (const MatmulStage& stage : all)
    if (std::optional<TaskStage> own = stage.tasks ? stage.tasks(c, t) : std::nullopt) {
      own_stages.push_back(std::move(*own));
      own_names.push_back(stage.name);
    }
  std::vector<std::string> stages;
  std::vector<ir::BufferId> results;  // behind the sums
  std::vector<ir::Param> more;        // parameters of stages
  std::function<std::vector<ir::Access>(const MatmulPart&)> writer;
  for (const StageUse& use : t.inputs.stages) {
    stages.push_back(use.stage->name);
    if (use.stage->params)
      for (ir::Param& p : use.stage->params(c, use.first)) more.push_back(std::move(p));
    if (use.stage->results)
      for (ir::BufferId b : use.stage->results(c)) results.push_back(b);
  }
  for (size_t i = 0; i < own_stages.size(); ++i) {
    const TaskStage& own = own_stages[i];
    stages.push_back(own_names[i]);
    more.insert(more.end(), own.params.begin(), own.params.end());
    results.insert(results.end(), own.results.begin(), own.results.end());
  }
  std::vector<ir::CallId> calls;
  for (const Mat& sum : sums) {
    std::vector<ir::BufferId> operands;
    for (int i = 0; i < t.own; ++i) operands.push_back(c.in(i).buffer);
    const auto at = operands.insert(operands.begin() + t.inputs.bias_at, sum.buffer);
    operands.insert(at + 1, results.begin(), results.end());
    std::vector<ir::Param> params = params_of(c, t, sum.dtype);
    params.insert(params.end(), more.begin(), more.end());
    calls.push_back(c.call_with("matmul", stages, std::move(params), std::move(operands),
                                loads_of(c, t.loads)));
    for (const TaskStage& stage : own_stages)
      if (!stage.moves.empty()) c.moves(calls.back(), stage.moves);
  }
  for (const StageUse& use : t.inputs.stages)
    if (use.stage->writer) writer = use.stage->writer(c, y);
  const auto product = [&](uint32_t index, int64_t r, int64_t n, int64_t part, ir::Block block) {
    for (const TaskStage& stage : own_stages)
      if (stage.block) block = stage.block(c.program()[calls[0]], index);
    MatmulPart own{block, r, r + bm, n, n + bn, n, n + bn};
    for (const TaskStage& stage : own_stages)
      if (stage.finishes) stage.finishes(own, part);
    std::vector<ir::Access> accesses = reads_of(c, t, own);
    const auto at = static_cast<size_t>(t.merged() ? part : 0);
    for (const TaskStage& stage : own_stages)
      if (stage.writes) accesses.push_back(stage.writes(index));
    if (writer)
      for (ir::Access& written : writer(own)) accesses.push_back(written);
    else if (own.own0 < y.cols)
      accesses.push_back(write(rows_of(sums[at], block, r, r + bm, own.own0, own.own1)));
    const ir::TaskId task = c.task(calls[at], index, std::move(accesses));
    for (const TaskStage& stage : own_stages)
      if (stage.signals) stage.signals(task, index);
  };
  if (first_block) {
    const int64_t rows = a.max_rows / world, own = t.count() / world;
    int64_t first = 0;
    for (int32_t step = *first_block; step < world; ++step, first += own) {
      const ir::Block block{step == 0 ? ir::RankRef::self() : ir::RankRef::shift(step), rows, {}};
      t.each_tile(rows, [&](int64_t r, int64_t n) {
        product(static_cast<uint32_t>(first + t.tile_at(r, n)), r, n, 0, block);
      });
    }
    return;
  }
  // Mates follow each other; otherwise all tiles of a part do.
  t.each_tile(a.max_rows, [&](int64_t r, int64_t n) {
    const int64_t tile = t.tile_at(r, n);
    for (int64_t part = 0; part < t.parts; ++part)
      product(static_cast<uint32_t>(t.mates ? 2 * tile + part : part * t.count() + tile), r, n,
              part, {});
  });
  if (t.merged()) merge_parts(c, t.epilogue, sums, y);
}

}  // namespace

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
             {"epilogue", AttrType::Word, false, "", {}, true}};
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
