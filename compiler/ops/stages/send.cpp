// Stage send: tasks write what they store to slots of peers as well, in tiles or in packets. The
// rule `send` of `fuse` decides where; the attribute `pushed` of the matmul and of the collective
// behind it says so (collectives/push.h).
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

std::string refuse_cut(const TileContext& c, const Cut& cut) {
  const auto to = pushed_to(c.graph(), c.id());
  if (!to) return "";
  const ir::Op& collective = c.graph()[*to];
  const MatmulMethod& method = functions::matmul_method(cut.method);
  MatmulShape shape = matmul_shape(c.graph(), c.op());
  shape.sent = true;
  const bool in_packets = method.few && is_one_shot_sum(collective) && ir::is_float(c.out(0).dtype);
  const bool shares = matmul_parts(c.in(0).cols, tiles_in(cut)) > 1;
  if (functions::takes_stage(method.code, "send") &&
      (in_packets ||
       (method.only_tensor_cores() && may_send(shape, method, tiles_in(cut), c.machine()) &&
        (!shares || c.may_mate("matmul")))))
    return "";
  return "a product that sends its tiles takes method 'mma' or 'wgmma', and all of K in a "
         "tile or halves that mates have, or for a one-shot allreduce of floats method 'dot'";
}

// With sums a rank begins with the rows that the next rank adds up. Its own rows come last, when
// the other ranks' parts have arrived (stages/add.cpp).
std::optional<int32_t> first_block(const TileContext& c, const MatmulTiling&) {
  const auto collective = pushed_to(c.graph(), c.id());
  if (!collective || !adds_up(TileContext(c).beside(*collective))) return std::nullopt;
  return 1;
}

std::optional<TaskStage> tasks(TileContext& c, const MatmulTiling& t) {
  const auto collective = pushed_to(c.graph(), c.id());
  if (!collective) return std::nullopt;
  TileContext beside = c.beside(*collective);
  const Arrivals push = begin_arrivals(beside);
  TaskStage stage;
  stage.params = send_params(c, t, push.exchange);
  stage.results = {push.slots};
  // The tile that is sent is the one that is stored, the last but one of the task's accesses.
  const auto sent = static_cast<uint32_t>(t.own);
  stage.moves = {{.kind = ir::Transfer::Kind::Copy, .from = {sent + 1}, .to = {sent}}};
  stage.block = [=](const ir::Call& call, uint32_t tile) {
    return functions::push_block_of(call, push.exchange, tile);
  };
  stage.writes = [&c, push](uint32_t tile) {
    return functions::push_access_of(c.program(), push.slots, push.exchange, tile);
  };
  stage.signals = [&c, push](ir::TaskId task, uint32_t tile) {
    c.signal(task, push.arrived[tile % push.arrived.size()],
             functions::peer_of(push.exchange, tile));
  };
  return stage;
}

}  // namespace

std::vector<ir::Param> send_params(const TileContext& c, const MatmulTiling& t,
                                   const functions::Exchange& exchange) {
  std::vector<ir::Param> params = functions::push_params_of(exchange);
  // With few tiles for each SM the last tiles would only come later
  // (docs/notebook/communication.md).
  constexpr int64_t kFewEach = 3;
  params.push_back(
      {"behind", !exchange.packets && !t.mates && t.count() > kFewEach * int64_t{compute_sms(c)}});
  return params;
}

MatmulStage send_stage() {
  return {.name = "send",
          .attrs = {as_made_attr()},
          .asks = [](const TileContext& c,
                     MatmulShape& s) { s.sent = pushed_to(c.graph(), c.id()).has_value(); },
          .refuse_cut = refuse_cut,
          .first_block = first_block,
          .tasks = tasks};
}

}  // namespace maco::ops
