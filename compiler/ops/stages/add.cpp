// Stage add, behind send: tasks for the rank's own rows add what the other ranks have sent of them,
// and send the sums on. These tasks are made on behalf of the collective.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/matmul_method.h"
#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/push.h"
#include "compiler/ops/matmul_stage.h"
#include "compiler/ops/matmul_tiles.h"
#include "compiler/ops/matmul_tiling.h"

namespace maco::ops {

namespace {

// Whether a pushed matmul with this cut can add up.
bool may_add(const TileContext& c, const Cut& cut) {
  constexpr int64_t kMostRanks = 8;  // a thread holds some elements of each rank
  const auto kept = [&](ir::TensorId t) { return c.graph()[t].kind != ir::TensorKind::State; };
  return refuse_blocks(c, cut).empty() && matmul_stages_of(c.op()).empty() &&
         c.world() <= kMostRanks && std::all_of(c.op().in.begin(), c.op().in.end(), kept);
}

}  // namespace

bool adds_up(const TileContext& collective) {
  return moves_as_made(collective.op()) && may_add_up(collective);
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

void add_up(TileContext& c, const Sums& sums) {
  TileContext product = c.beside(*product_of(c.graph(), c.op()));
  const MatmulTiling t = tiling_of(product);
  std::vector<ir::BufferId> operands;
  for (int i = 0; i < t.own; ++i) operands.push_back(product.in(i).buffer);
  const Mat x = c.in(0), y = c.out(0);
  const ir::BufferId more[] = {y.buffer, sums.to_all, sums.parts, x.buffer};
  operands.insert(operands.begin() + t.inputs.bias_at, std::begin(more), std::end(more));
  std::vector<ir::Param> params = params_of(product, t, y.dtype);
  for (ir::Param& p : send_params(product, t, sums.exchange)) params.push_back(std::move(p));
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

// The collective's rule makes its tasks.
MatmulStage add_stage() {
  return {.name = "add",
          .tasks = [](TileContext&, const MatmulTiling&) { return std::optional<TaskStage>(); }};
}

}  // namespace maco::ops
