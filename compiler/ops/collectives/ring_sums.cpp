#include "compiler/ops/collectives/ring_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/ops/attrs.h"

namespace maco::ops {

using functions::Exchange;
using ir::BufferId;
using ir::DType;
using ir::RankRef;
using ir::Reduction;

bool ring_is_exact(const ir::Graph& graph, const ir::Op& op) {
  return graph.world <= 2 || !ir::ring_rounds(graph[op.in[0]].dtype, graph[op.out[0]].dtype,
                                              attr_word(op, "reduce", "sum"));
}

namespace {

// The type in which unfinished reductions of x travel. Integers lose nothing, nor does a maximum or
// minimum.
DType part_type(DType x, DType y, Reduction reduce) {
  const bool sums = reduce == Reduction::Sum || reduce == Reduction::Avg;
  return sums && ir::is_float(x) && !ir::ring_rounds(x, y, name(reduce)) ? DType::F32 : x;
}

uint64_t below(int64_t rank) { return only(rank) - 1; }

// The calls for tiles on their way, and the slots in which the tiles lie.
class Sums {
 public:
  Sums(TileContext& c, const Mat& x, const Boxes& boxes, bool scatter)
      : c_(c),
        x_(x),
        y_(c.out(0)),
        reduce_(reduction(c)),
        part_(part_type(x.dtype, y_.dtype, reduce_)),
        ring_(c, boxes, x.dtype, y_.dtype, in_packets(c)),
        base_(ring_.base()) {
    base_.mode = functions::PeerMode::Block;
    base_.own_blocked = scatter;
    base_.source_rows = false;
    // Packets are passed on as they come, if the result's elements fill as many.
    base_.packets = base_.packets && ir::size_of(part_) == ir::size_of(y_.dtype);
    const int64_t tiles = ring_.tiles() * (scatter ? c.world() : 1);
    // Packets of one launch can't be told apart, so that sums and results can't share a place.
    const bool shared = part_ == y_.dtype && !base_.packets;
    const auto slots = [&](const char* suffix, DType dtype) {
      return c.buffer(suffix, ir::BufferKind::Slot, dtype, 1, tiles * base_.stride, 2,
                      base_.packets);
    };
    parts_ = slots(shared ? "slots" : "parts", part_);
    results_ = shared ? parts_ : slots("results", y_.dtype);
  }
  int64_t tiles() const { return ring_.tiles(); }
  ir::EventId arrival(const std::string& suffix) { return ring_.arrival(suffix, base_.packets); }
  ir::TaskId task(const Exchanger::Call& call, int64_t tile, uint64_t ranks) {
    return ring_.task(call, tile, ranks);
  }

  // Sends the own tile to the next rank.
  Exchanger::Call first(int64_t tasks) {
    Exchange e = base_;
    e.own = e.pass = true;
    e.in = e.out = part_;
    return call(e, parts_, parts_, tasks);
  }
  // Adds the own tile to what came.
  Exchanger::Call add(int64_t tasks) {
    Exchange e = base_;
    e.own = e.arrived = e.pass = true;
    e.in = e.out = part_;
    if (reduce_ != Reduction::Avg) e.reduce = reduce_;  // the last rank divides
    return call(e, parts_, parts_, tasks);
  }
  Exchanger::Call last(bool keep, bool pass, int64_t tasks) {
    Exchange e = base_;
    e.own = e.arrived = true;
    e.keep = keep;
    e.pass = pass;
    e.reduce = reduce_;
    e.in = part_;
    e.out = y_.dtype;
    return call(e, parts_, results_, tasks);
  }
  // What came is the result.
  Exchanger::Call result(bool keep, bool pass, int64_t tasks) {
    Exchange e = base_;
    e.arrived = true;
    e.keep = keep;
    e.pass = pass;
    e.in = e.out = y_.dtype;
    return call(e, results_, results_, tasks);
  }

 private:
  Exchanger::Call call(const Exchange& e, BufferId from, BufferId to, int64_t tasks) {
    return ring_.call("hop", e, {x_.buffer, from, y_.buffer, to}, tasks);
  }

  TileContext& c_;
  Mat x_, y_;
  Reduction reduce_;
  DType part_;
  Exchanger ring_;
  Exchange base_;
  BufferId parts_{}, results_{};
};

}  // namespace

void ring_sums(TileContext& c, const Mat& x, const Boxes& boxes, bool scatter) {
  const int64_t world = c.world(), last = world - 1, blocks = scatter ? world : 1;
  if (world == 1) {
    const Mat y = c.out(0);
    return Exchanger(c, boxes, x.dtype, y.dtype, false).copy_own(x, y, false, false);
  }
  Sums sums(c, x, boxes, scatter);
  const int64_t tiles = sums.tiles(), count = blocks * tiles;
  using Calls = std::optional<Exchanger::Call>;
  const Exchanger::Call first = sums.first(count);
  const Calls add = world > 2 ? Calls(sums.add(count)) : std::nullopt;
  // Calls for the last rank's own block, which stays there, and for the other blocks, which go on.
  const Calls kept = scatter ? Calls(sums.last(true, false, tiles)) : std::nullopt;
  const int64_t others = scatter ? count - tiles : count;
  const Exchanger::Call passed = sums.last(!scatter, true, others);
  // A block that ends at rank 0 isn't passed on there.
  const Calls relay = world > 2
                          ? Calls(sums.result(!scatter, true, scatter ? others - tiles : count))
                          : std::nullopt;
  const Exchanger::Call end = sums.result(true, false, others);

  const RankRef next = RankRef::shift(1), before = RankRef::shift(static_cast<int32_t>(world - 1));
  // The order of tiles: the first tile of all blocks comes before the second tile of any block.
  const auto block_of = [&](int64_t i) { return i % blocks; };
  const auto tile_of = [&](int64_t i) { return block_of(i) * tiles + i / blocks; };
  // The rank at which a result arrives last.
  const auto end_of = [&](int64_t i) { return scatter ? block_of(i) : last - 1; };
  std::vector<ir::EventId> results;
  // For each hop one more tile is on its way.
  const int64_t ahead = tiles_ahead(c) * (world + 1) / 3;
  in_turn(
      count, std::min(count, ahead),
      [&](int64_t i) {
        const int64_t t = tile_of(i);
        const ir::EventId part = sums.arrival(fmt::format("part.{}", t));
        c.signal(sums.task(first, t, only(0)), part, next);
        if (add) {
          const ir::TaskId task = sums.task(*add, t, below(last) & ~only(0));
          c.wait(task, part, before);
          c.signal(task, part, next);
        }
        const bool here = end_of(i) == last;
        const ir::TaskId done = sums.task(here ? *kept : passed, t, only(last));
        c.wait(done, part, before);
        results.push_back(here ? ir::EventId{} : sums.arrival(fmt::format("result.{}", t)));
        if (!here) c.signal(done, results.back(), next);
      },
      [&](int64_t i) {
        const int64_t t = tile_of(i), to = end_of(i);
        if (to == last) return;
        const ir::EventId result = results[static_cast<size_t>(i)];
        if (to > 0) {
          const ir::TaskId task = sums.task(*relay, t, below(to));
          c.wait(task, result, before);
          c.signal(task, result, next);
        }
        c.wait(sums.task(end, t, only(to)), result, before);
      });
}

}  // namespace maco::ops
