#include "compiler/ops/collectives/exchange_tasks.h"

#include <algorithm>
#include <iterator>

#include "compiler/ops/collectives/push.h"

namespace maco::ops {

using functions::Exchange;
using ir::Expr;

Mat by_blocks(const TileContext& context, ir::TensorId tensor, int64_t blocks) {
  Mat m = context.mat(tensor);
  // One row. A dim with only one value gives as many rows as it says.
  if (context.shape(tensor).size() == 1 && !m.dynamic() && m.max_rows == 1) {
    m.rows = Expr(blocks);
    m.min_rows = m.max_rows = blocks;
    m.cols /= blocks;
  }
  return m;
}

namespace {

int64_t sms_of(const ir::Program& program, ir::Role role) {
  int64_t count = 0;
  for (const ir::CtaRange& range : program.roles)
    if (range.role == role) count += range.end - range.begin;
  return count;
}

// How many elements a tile should have, for tensors of `elements` elements.
// Packets: one tile for each SM that communicates. Stores: likewise, if other SMs compute, since a
// task waits for memory most of its time. If nothing else runs, there are whole rounds of tiles for
// all SMs, as few as tiles of 64 KB allow. No tile is so small that its flag weighs more than its
// data.
int64_t target_elements(const TileContext& c, int64_t elements, int64_t size, bool packets) {
  const cost::Machine& machine = c.machine();
  const int64_t comm = std::max<int64_t>(1, machine.default_comm);
  if (machine.arch == 0) return std::clamp<int64_t>(elements / (4 * comm), 96, 4096);
  constexpr int64_t kib = 1024;
  if (packets) return std::clamp(elements / comm, kib / size, 32 * kib / size);
  const int64_t own = sms_of(c.program(), ir::Role::Comm);
  // If the graph limits symmetric memory, tiles are those that choose-collectives has computed,
  // before roles were known.
  const bool beside =
      own > 0 && sms_of(c.program(), ir::Role::Compute) > 0 && !c.graph().comm_buffer_bytes;
  // With more tiles than this, each tile is larger: tasks are listed and proved one by one.
  constexpr int64_t kMostTiles = 16384;
  const int64_t least = 16 * kib / size, most = std::max(64 * kib / size, elements / kMostTiles);
  if (beside) return std::clamp(elements / own, least, most);
  const int64_t sms = own > 0 && !c.graph().comm_buffer_bytes ? own : machine.sms,
                rounds = tiles_of(elements, sms * most);
  return std::clamp(elements / (sms * rounds), least, most);
}

}  // namespace

Cut choose_exchange(const TileContext& context, const Mat& m, const Expr& rows, int64_t blocks,
                    int64_t shares) {
  const int64_t max_rows = context.range(ir::canonical(rows)).hi;
  const bool packets = m.max_elements() / shares * ir::size_of(m.dtype) <= kPacketBytes;
  const int64_t target =
      target_elements(context, max_rows * m.cols * blocks, ir::size_of(m.dtype), packets);
  const int64_t run = target >= 512 ? 512 : 64;
  int64_t cols =
      std::min(m.cols, std::max(run, target / std::max<int64_t>(1, max_rows) / run * run));
  int64_t high = std::clamp<int64_t>(target / cols, 1, max_rows);
  // No tiles behind the last whole round: as many as there are targets, of about that size.
  if (!packets && context.machine().arch != 0) {
    const int64_t tiles = std::max<int64_t>(1, max_rows * m.cols / target), most = target * 5 / 4;
    high = tiles_of(max_rows, std::max<int64_t>(1, tiles / tiles_of(m.cols, cols)));
    high = std::min(high, std::max<int64_t>(1, most / cols));
    constexpr int64_t kLine = 64;
    const int64_t across = std::max<int64_t>(1, tiles / tiles_of(max_rows, high)),
                  wide = std::min(m.cols, tiles_of(tiles_of(m.cols, across), kLine) * kLine);
    if (high * wide <= most) cols = wide;
  }
  return {packets ? "packets" : "stores", {high, cols}};
}

int64_t tiles_ahead(const TileContext& context) {
  return 3 * std::max<int64_t>(1, context.machine().default_comm);
}

Boxes boxes_of(const TileContext& context, const Mat& m, const Expr& rows) {
  const Cut cut = context.cut();
  Boxes b;
  b.rows = ir::canonical(rows);
  b.max_rows = context.range(b.rows).hi;
  b.cols = m.cols;
  b.BR = cut.tile[0];
  b.BC = cut.tile[1];
  b.across = (b.cols + b.BC - 1) / b.BC;
  b.down = (b.max_rows + b.BR - 1) / b.BR;
  b.stride = (b.BR * b.BC + 15) / 16 * 16;
  return b;
}

bool in_packets(const TileContext& context) { return context.cut().method == "packets"; }

ir::Reduction reduction(const TileContext& context) {
  const std::string word = context.word("reduce", "sum");
  for (const auto r : {ir::Reduction::Avg, ir::Reduction::Max, ir::Reduction::Min})
    if (word == name(r)) return r;
  return ir::Reduction::Sum;
}

namespace {

// The role of the SMs that communicate. If none of them takes the op, SMs that compute handle what
// a matmul has pushed.
ir::Role role_of(const TileContext& c) {
  const std::vector<ir::CtaRange>& roles = c.program().roles;
  const bool comm =
      roles.empty() || std::any_of(roles.begin(), roles.end(), [&](const ir::CtaRange& range) {
        const auto& ops = range.ops;
        return range.role == ir::Role::Comm &&
               (ops.empty() || std::find(ops.begin(), ops.end(), c.op().kind) != ops.end());
      });
  return comm ? ir::Role::Comm : ir::Role::Compute;
}

}  // namespace

Exchanger::Exchanger(TileContext& context, const Boxes& b, ir::DType x, ir::DType y, bool packets)
    : c_(context) {
  base_.world = c_.world();
  base_.tiles = b.count();
  base_.cols = b.cols;
  base_.BR = b.BR;
  base_.BC = b.BC;
  base_.across = b.across;
  base_.stride = b.stride;
  base_.rows = std::get<ir::ValueRef>(c_.value("rows", b.rows).value);
  base_.packets = packets;
  base_.x = base_.sent = x;
  base_.y = y;
  c_.room_for(base_.tiles);
}

ir::BufferId Exchanger::slots(const std::string& suffix, const Exchange& e, ir::DType dtype) {
  const int64_t places = (e.tiles + e.slot_div - 1) / e.slot_div;
  return c_.buffer(suffix, ir::BufferKind::Slot, dtype, e.source_rows ? e.world : 1,
                   places * e.stride, 2, e.packets);
}

ir::EventId Exchanger::arrival(const std::string& suffix, bool packets) {
  return c_.event(suffix, packets ? ir::EventKind::Packet : ir::EventKind::Peer);
}

Exchanger::Call Exchanger::call(const std::string& function, const Exchange& e,
                                std::vector<ir::BufferId> operands, std::optional<int64_t> tasks,
                                std::vector<ir::Param> more) {
  std::vector<ir::Param> params = functions::params_of(function, e);
  std::move(more.begin(), more.end(), std::back_inserter(params));
  const ir::CallId id = c_.call(function, std::move(params), std::move(operands));
  c_.moves(id, functions::transfers_of(function, e));
  const bool each = e.mode == functions::PeerMode::Each;
  c_.announce(tasks ? *tasks : each ? e.tiles * (e.world - 1) : e.tiles);
  return {id, e};
}

ir::TaskId Exchanger::task(const Call& call, int64_t tile, uint64_t ranks) {
  const auto t = static_cast<uint32_t>(tile);
  const ir::Program& p = c_.program();
  return c_.task(call.id, t, functions::accesses_of(p, p[call.id], call.exchange, t), role_of(c_),
                 ranks);
}

Exchanger::Call Exchanger::own_copies(const Mat& x, const Mat& y, bool from_block, bool to_block) {
  Exchange e = base_;
  e.mode = functions::PeerMode::Fixed;
  e.own = true;
  e.own_blocked = from_block;
  e.blocked = to_block;
  e.packets = false;
  return call("take", e, {x.buffer, y.buffer});
}

void Exchanger::copy_own(const Mat& x, const Mat& y, bool from_block, bool to_block,
                         uint64_t ranks) {
  const Call copy = own_copies(x, y, from_block, to_block);
  for (int64_t t = 0; t < tiles(); ++t) task(copy, t, ranks);
}

}  // namespace maco::ops
