// chunk_ring: an all-reduce in which a rank only writes to the next one.
//
// The tensor has `world` chunks. Chunk c starts at rank c and goes round: rank c + s adds its own
// and passes the sum on, until rank c - 1 has the whole sum. Then it goes round once more, and
// every rank keeps it. From rank r's view: step s of the first round adds chunk r - s, step s of
// the second keeps chunk r + 1 - s; the last step of the first round leaves it with chunk r + 1. So
// one call for each step, with regions relative to the rank, is enough for all ranks.
//
// Slots for two launches are enough: what arrives in a round has passed every rank, so that a rank
// that has ended launch e knows that all others have begun it.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/functions/function.h"
#include "compiler/ops/collectives/algorithms.h"
#include "compiler/ops/tile.h"
#include "tests/extend/extension.h"

namespace maco::extend {

namespace {

using ir::RankRef;

constexpr int64_t kTileElements = 2048;

constexpr const char* kSource =
    R"(// ring_step: one step of an all-reduce round a ring of W ranks, on a tile of B
// elements of a chunk of n, which is chunk (rank + shift) modulo W. arrived: row `from` of the
// slots has what came so far; own: this rank's x is added; keep: the sum goes to y; pass: it goes to row
// `to` of the next rank's slots.
namespace maco::ops {
template <class C>
MACO_OP void ring_step(Context& ctx, const Args& args, u32 tile) {
  using X = typename C::X;
  using Y = typename C::Y;
  using In = typename C::In;
  using Out = typename C::Out;
  const i64 first = i64(tile) * C::B, count = least(C::B, C::n - first);
  const i64 at = (ctx.rank() + C::shift) % C::W * C::n + first;
  const X* x = args.template ptr<X>(0) + at;
  const In* arrived = args.template ptr<In>(1) + C::from * C::n + first;
  Y* y = args.template ptr<Y>(2) + at;
  Out* next = args.template peer<Out>(3, int((ctx.rank() + 1) % C::W)) + C::to * C::n + first;
  for (i64 i = consumer_thread(); i < count; i += kConsumers) {
    AccOf<X> sum = C::arrived ? AccOf<X>(to_acc(gload(arrived + i))) : to_acc(gload(x + i));
    if (C::arrived && C::own) sum = reduce_step<C>(sum, to_acc(gload(x + i)));
    if (C::keep) gstore(y + i, from_acc<Y>(sum));
    if (C::pass) peer_store(next + i, from_acc<Out>(sum));
  }
}
}  // namespace maco::ops
)";

struct Step {
  int64_t shift = 0;      // of the chunk
  int64_t from = -1;      // row of the slots with what arrived
  bool own = false;       // the rank's own chunk goes in
  bool keep = false;      // to the result
  int64_t to = -1;        // row of the next rank's slots
  bool last_sum = false;  // sends from the first round's slots to the second round's
};

std::vector<Step> steps_of(int64_t world) {
  if (world == 1) return {{.own = true, .keep = true}};
  std::vector<Step> steps = {{.own = true, .to = 0}};
  for (int64_t s = 1; s < world; ++s) {
    const bool last = s == world - 1;
    steps.push_back({.shift = world - s,
                     .from = s - 1,
                     .own = true,
                     .keep = last,
                     .to = last ? 0 : s,
                     .last_sum = last});
  }
  for (int64_t s = 1; s < world; ++s)
    steps.push_back({.shift = (world + 1 - s) % world,
                     .from = s - 1,
                     .keep = true,
                     .to = s == world - 1 ? -1 : s});
  return steps;
}

ir::Region of_chunk(const ops::Mat& m, int64_t shift, int64_t n, int64_t first, int64_t end) {
  return {.buffer = m.buffer,
          .pitch = n,
          .r1 = 1,
          .c0 = first,
          .c1 = end,
          .block = {.ref = RankRef::shift(static_cast<int32_t>(shift)), .rows = 1},
          .where = {}};
}
ir::Region of_slots(ir::BufferId slots, int64_t row, int64_t n, int64_t first, int64_t end,
                    RankRef where) {
  return {.buffer = slots,
          .pitch = n,
          .r0 = row,
          .r1 = row + 1,
          .c0 = first,
          .c1 = end,
          .block = {},
          .where = where};
}

void tile(ops::TileContext& c) {
  const ops::Mat x = c.in(0), y = c.out(0);
  const int64_t world = c.world(), elements = x.max_elements();
  const std::string word = c.word("reduce", "sum");
  if (x.dynamic() || elements % world != 0)
    return c.error(fmt::format(
        "'chunk_ring' needs a multiple of {} elements, the same in each launch; use 'twoshot'",
        world));
  if (word == "avg") return c.error("'chunk_ring' has no 'avg'; use 'oneshot'");
  const auto reduction = word == "max"   ? ir::Reduction::Max
                         : word == "min" ? ir::Reduction::Min
                                         : ir::Reduction::Sum;
  c.promise(ir::CollectiveKind::AllReduce, reduction);

  const int64_t n = elements / world, tiles = (n + kTileElements - 1) / kTileElements;
  const ir::DType sum = ir::is_float(x.dtype) ? ir::DType::F32 : ir::DType::I32;
  const int64_t rows = std::max<int64_t>(1, world - 1);
  const ir::BufferId sums = c.buffer("sums", ir::BufferKind::Slot, sum, rows, n, 2),
                     results = c.buffer("results", ir::BufferKind::Slot, y.dtype, rows, n, 2);
  const auto to_next = RankRef::shift(1), to_last = RankRef::shift(static_cast<int32_t>(world - 1));

  std::vector<ir::EventId> arrived(static_cast<size_t>(tiles));  // events that the next step awaits
  bool second_round = false;
  size_t number = 0;
  for (const Step& s : steps_of(world)) {
    const bool in_second = second_round, out_second = second_round || s.last_sum;
    const ir::BufferId in = in_second ? results : sums, out = out_second ? results : sums;
    const ir::CallId call = c.call("ring_step",
                                   {{"W", world},
                                    {"n", n},
                                    {"B", kTileElements},
                                    {"shift", s.shift},
                                    {"from", std::max<int64_t>(0, s.from)},
                                    {"to", std::max<int64_t>(0, s.to)},
                                    {"arrived", s.from >= 0},
                                    {"own", s.own},
                                    {"keep", s.keep},
                                    {"pass", s.to >= 0},
                                    {"reduce", ir::Word{word}},
                                    {"X", x.dtype},
                                    {"Y", y.dtype},
                                    {"In", in_second ? y.dtype : sum},
                                    {"Out", out_second ? y.dtype : sum}},
                                   {x.buffer, in, y.buffer, out});
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = t * kTileElements, end = std::min(n, first + kTileElements);
      std::vector<ir::Access> accesses;
      ir::Transfer moves;
      const auto access = [&](ir::Access a, std::vector<uint32_t>& places) {
        places.push_back(static_cast<uint32_t>(accesses.size()));
        accesses.push_back(a);
      };
      if (s.from >= 0)
        access(ops::read(of_slots(in, s.from, n, first, end, RankRef::self())), moves.from);
      if (s.own) access(ops::read(of_chunk(x, s.shift, n, first, end)), moves.from);
      if (s.keep) access(ops::write(of_chunk(y, s.shift, n, first, end)), moves.to);
      if (s.to >= 0) access(ops::write(of_slots(out, s.to, n, first, end, to_next)), moves.to);
      if (moves.from.size() > 1) {
        moves.kind = ir::Transfer::Kind::Reduce;
        moves.reduce = reduction;
      }
      if (t == 0) c.moves(call, {moves});
      const ir::TaskId task =
          c.task(call, static_cast<uint32_t>(t), std::move(accesses), ir::Role::Comm);
      auto& event = arrived[static_cast<size_t>(t)];
      if (s.from >= 0) c.wait(task, event, to_last);
      if (s.to < 0) continue;
      event = c.event(fmt::format("step{}.{}", number, t), ir::EventKind::Peer);
      c.signal(task, event, to_next);
    }
    second_round = out_second;
    ++number;
  }
}

// Every step is a hop; a rank sends each chunk except one twice.
cost::Route route(double bytes, int64_t world) {
  const double steps = 2 * static_cast<double>(world - 1);
  return {steps, steps * bytes / static_cast<double>(world)};
}

}  // namespace

std::string register_chunk_ring() {
  using functions::Access;
  using functions::ParamType;
  functions::Function step{
      .name = "ring_step",
      .operands = {{"x"}, {"arrived"}, {"y", Access::Write}, {"next", Access::Write}},
      .source = {{"rows.cuh", "ops/collectives.cuh"}, kSource}};
  for (const char* name : {"W", "n", "B", "shift", "from", "to"})
    step.params.push_back({name, ParamType::Int});
  for (const char* name : {"arrived", "own", "keep", "pass"})
    step.params.push_back({name, ParamType::Bool});
  step.params.push_back({"reduce", ParamType::Word, {"sum", "max", "min"}, "ops::Reduction"});
  for (const char* name : {"X", "Y", "In", "Out"}) step.params.push_back({name, ParamType::DType});
  if (std::string why = functions::register_function(step); !why.empty()) return why;
  return ops::register_algorithm({"allreduce", "chunk_ring", tile, route});
}

}  // namespace maco::extend
