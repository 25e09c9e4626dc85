#include "compiler/ops/collectives/user_algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "compiler/functions/chunks.h"
#include "compiler/ops/collectives/exchange_tasks.h"
#include "compiler/ops/collectives/scatter.h"
#include "ir/check.h"
#include "ir/ranks.h"

namespace maco::ops {

namespace {

using functions::ChunkMove;
using functions::ChunkPlace;
using ir::DType;
using ir::RankRef;

ChunkFlow flow_of(const TileContext& c, const ir::UserAlgorithm& algorithm) {
  ir::Diagnostics unheard;
  auto flow = chunk_flow(c.graph(), c.op(), algorithm, unheard);
  MACO_CHECK(flow, "checked by choose-collectives");
  return std::move(*flow);
}

bool in_blocks(const std::string& op) { return op == "reduce_scatter" || op == "alltoall"; }
bool out_blocks(const std::string& op) { return op == "allgather" || op == "alltoall"; }

struct Tensors {
  Mat x, y;
  ir::Expr rows;  // of a block
};
Tensors tensors_of(const TileContext& c) {
  const std::string& kind = c.op().kind;
  Tensors t;
  t.x = in_blocks(kind) ? by_blocks(c, c.op().in[0], c.world()) : c.in(0);
  t.y = out_blocks(kind) ? by_blocks(c, c.op().out[0], c.world()) : c.out(0);
  t.rows = in_blocks(kind) ? block_rows(c, t.x) : t.x.rows;
  return t;
}

// The type of what lies in slots. Values of x, whole results (in y's dtype) and sums of integers
// lose nothing; unfinished sums of at most 16 bits are rounded to x's dtype, as in a ring.
DType part_type(DType x, DType y, ir::Reduction reduce, bool sums_lie_in_slots) {
  if (x != y) return ir::is_float(x) ? DType::F32 : x;
  const bool sums = reduce == ir::Reduction::Sum || reduce == ir::Reduction::Avg;
  return sums_lie_in_slots && sums && ir::is_float(x) && !ir::ring_rounds(x, y, name(reduce))
             ? DType::F32
             : x;
}

uint64_t key_of(int rank, uint32_t value) {
  return (uint64_t{value} << 8) + static_cast<uint64_t>(rank);
}

/// The tasks of one op.
class Maker {
 public:
  Maker(TileContext& c, const ChunkFlow& flow)
      : c_(c), f_(flow), t_(tensors_of(c)), boxes_(boxes_of(c, t_.x, t_.rows)) {
    const bool reduces = c.op().kind == "allreduce" || c.op().kind == "reduce_scatter";
    all_ = reduces ? ir::all_ranks(c.world()) : 0;
    chunks_.world = c.world();
    chunks_.cols = boxes_.cols;
    chunks_.BR = boxes_.BR;
    chunks_.BC = boxes_.BC;
    chunks_.across = boxes_.across;
    chunks_.stride = boxes_.stride;
    chunks_.rows = std::get<ir::ValueRef>(c.value("rows", boxes_.rows).value);
    chunks_.x_blocks = in_blocks(c.op().kind);
    chunks_.y_blocks = out_blocks(c.op().kind);
    chunks_.packets = in_packets(c);
    chunks_.reduce = reduction(c);
    chunks_.x = t_.x.dtype;
    chunks_.y = t_.y.dtype;
  }

  void run() {
    index_steps();
    int64_t tasks = 0;
    for (const ChunkStep& s : f_.steps) tasks += tiles_of_value(s.value);
    c_.announce(tasks);
    place_cells();
    order_tasks();
    make_moves();
    make_tasks();
  }

 private:
  struct Task {
    uint32_t step = 0;
    int64_t k = 0;  // among the chunk's tiles
  };
  // A value in slots of the rank that reads it.
  struct Arrival {
    uint32_t from = 0;                // the step that sends it
    int64_t cell = 0;                 // of the value's first tile
    std::vector<uint32_t> readers{};  // steps
  };

  const ChunkValue& value(uint32_t v) const { return f_.values[v]; }
  int64_t part_of(uint32_t v) const { return value(v).chunk % f_.parts; }
  int64_t first_tile(uint32_t v) const { return boxes_.count() * part_of(v) / f_.parts; }
  int64_t tiles_of_value(uint32_t v) const {
    return boxes_.count() * (part_of(v) + 1) / f_.parts - first_tile(v);
  }
  bool whole(uint32_t v) const { return all_ != 0 && value(v).ranks == all_; }

  // Finds which values arrive where, from which step, and who reads them there.
  void index_steps() {
    ordinal_.resize(f_.steps.size());
    depth_.assign(f_.steps.size(), 0);
    std::vector<uint32_t> count(static_cast<size_t>(c_.world()), 0);
    for (uint32_t s = 0; s < f_.steps.size(); ++s) {
      const ChunkStep& step = f_.steps[s];
      ordinal_[s] = count[static_cast<size_t>(step.rank)]++;
      for (int to : step.to) arrivals_[key_of(to, step.value)].from = s;
      if (step.keep) arrivals_[key_of(step.rank, step.value)].from = s;
      sums_lie_ = sums_lie_ ||
                  (!step.from.empty() && !whole(step.value) && (step.keep || !step.to.empty()));
    }
    for (uint32_t s = 0; s < f_.steps.size(); ++s)
      for (uint32_t v : sources_of(f_.steps[s]))
        if (const auto it = arrivals_.find(key_of(f_.steps[s].rank, v)); it != arrivals_.end()) {
          it->second.readers.push_back(s);
          depth_[s] = std::max(depth_[s], depth_[it->second.from] + 1);
        }
    find_echoes();
  }
  static std::vector<uint32_t> sources_of(const ChunkStep& step) {
    return step.from.empty() ? std::vector{step.value} : step.from;
  }
  const Arrival* arrival_of(int rank, uint32_t v) const {
    const auto it = arrivals_.find(key_of(rank, v));
    return it == arrivals_.end() ? nullptr : &it->second;
  }

  // For each rank: the ranks of which it hears in a launch, through what it reads.
  void find_echoes() {
    std::vector<uint64_t> of_step(f_.steps.size(), 0);  // ranks of which the step's rank has heard
    heard_.assign(static_cast<size_t>(c_.world()), 0);
    for (uint32_t s = 0; s < f_.steps.size(); ++s) {
      const ChunkStep& step = f_.steps[s];
      // A chunk without tiles brings no news.
      if (tiles_of_value(step.value) == 0) continue;
      of_step[s] |= only(step.rank);
      for (uint32_t v : sources_of(step))
        if (const Arrival* a = arrival_of(step.rank, v)) of_step[s] |= of_step[a->from];
      heard_[static_cast<size_t>(step.rank)] |= of_step[s];
    }
  }
  // Whether a sender hears of its receiver before its next launch but one. If not, readers
  // acknowledge.
  bool needs_echo(int sender, int receiver) const {
    return sender != receiver && !((heard_[static_cast<size_t>(sender)] >> receiver) & 1);
  }

  void place_cells() {
    std::vector<int64_t> used(static_cast<size_t>(c_.world()), 0);
    for (uint32_t s = 0; s < f_.steps.size(); ++s) {
      const ChunkStep& step = f_.steps[s];
      const auto give = [&](int rank) {
        int64_t& next = used[static_cast<size_t>(rank)];
        arrivals_[key_of(rank, step.value)].cell = next;
        next += tiles_of_value(step.value);
      };
      for (int to : step.to) give(to);
      if (step.keep) give(step.rank);
    }
    const int64_t cells = *std::max_element(used.begin(), used.end());
    chunks_.slots = cells > 0;
    chunks_.part = part_type(chunks_.x, chunks_.y, chunks_.reduce, sums_lie_);
    if (chunks_.slots)
      slots_ = c_.buffer("slots", ir::BufferKind::Slot, chunks_.part, 1, cells * boxes_.stride, 2,
                         chunks_.packets);
    else
      chunks_.packets = false;
  }

  // The tiles of a step follow each other. Those of the next hop come `ahead` tiles later, never
  // before what they need.
  void order_tasks() {
    const int64_t ahead = tiles_ahead(c_);
    std::map<std::pair<uint32_t, int>, int64_t> made;  // by depth and rank: tiles
    std::vector<int64_t> first(f_.steps.size()), waits(f_.steps.size(), 0);
    std::vector<std::vector<uint32_t>> next(f_.steps.size());
    for (uint32_t s = 0; s < f_.steps.size(); ++s) {
      int64_t& so_far = made[{depth_[s], f_.steps[s].rank}];
      first[s] = so_far + depth_[s] * ahead;
      so_far += tiles_of_value(f_.steps[s].value);
      for (uint32_t v : sources_of(f_.steps[s]))
        if (const Arrival* a = arrival_of(f_.steps[s].rank, v)) {
          ++waits[s];
          next[a->from].push_back(s);
        }
    }
    using Key = std::tuple<int64_t, uint32_t, int64_t>;
    std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
    std::vector<std::vector<int64_t>> open(f_.steps.size());  // by tile: what it waits for
    for (uint32_t s = 0; s < f_.steps.size(); ++s) {
      const int64_t tiles = tiles_of_value(f_.steps[s].value);
      open[s].assign(static_cast<size_t>(tiles), waits[s]);
      for (int64_t k = 0; waits[s] == 0 && k < tiles; ++k) ready.emplace(first[s] + k, s, k);
    }
    while (!ready.empty()) {
      const auto [key, s, k] = ready.top();
      ready.pop();
      tasks_.push_back({s, k});
      for (uint32_t n : next[s])
        if (--open[n][static_cast<size_t>(k)] == 0) ready.emplace(first[n] + k, n, k);
    }
  }

  ChunkPlace slot(int rank, uint32_t v, int64_t k, int named) const {
    return {true, named, arrival_of(rank, v)->cell + k};
  }
  void make_moves() {
    for (const Task& task : tasks_) {
      const ChunkStep& step = f_.steps[task.step];
      ChunkMove m;
      m.tile = first_tile(step.value) + task.k;
      m.whole = whole(step.value);
      for (uint32_t v : sources_of(step)) {
        const Arrival* a = arrival_of(step.rank, v);
        // A value of this rank's own is in slots of other ranks only.
        if (a && a->from != task.step)
          m.from.push_back(slot(step.rank, v, task.k, f_.steps[a->from].rank));
        else
          m.from.push_back({false, chunks_.x_blocks ? value(v).chunk / f_.parts : 0, 0});
      }
      if (step.out) m.to.push_back({false, chunks_.y_blocks ? *step.out / f_.parts : 0, 0});
      if (step.keep) m.to.push_back(slot(step.rank, step.value, task.k, step.rank));
      for (int to : step.to) m.to.push_back(slot(to, step.value, task.k, to));
      chunks_.moves.push_back(std::move(m));
    }
  }

  ir::EventId event(std::map<std::tuple<uint32_t, int64_t, size_t>, ir::EventId>& events,
                    const char* what, uint32_t step, int64_t k, size_t reader, ir::EventKind kind) {
    const auto [it, fresh] = events.try_emplace({ordinal_[step], k, reader});
    if (fresh)
      it->second =
          c_.event(reader == 0 ? fmt::format("{}.{}.{}", what, ordinal_[step], k)
                               : fmt::format("{}.{}.{}.{}", what, ordinal_[step], k, reader),
                   kind);
    return it->second;
  }

  void make_tasks() {
    const std::vector<ir::Param> params = functions::params_of(chunks_);
    std::vector<ir::BufferId> operands = {t_.x.buffer, t_.y.buffer};
    if (chunks_.slots) operands.push_back(slots_);
    // Calls, by how many places their tasks read, which of all places are slots, and how they
    // reduce.
    std::map<std::tuple<size_t, std::vector<bool>, bool>, ir::CallId> calls;
    const ir::EventKind arrives = chunks_.packets ? ir::EventKind::Packet : ir::EventKind::Peer;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const ChunkStep& step = f_.steps[tasks_[i].step];
      const int64_t k = tasks_[i].k;
      const ChunkMove& m = chunks_.moves[i];
      const bool divides = m.whole && chunks_.reduce == ir::Reduction::Avg;
      std::vector<bool> slots;
      for (const auto* places : {&m.from, &m.to})
        for (const ChunkPlace& p : *places) slots.push_back(p.slot);
      const auto [call, fresh] =
          calls.try_emplace({m.from.size(), slots, m.from.size() > 1 && divides});
      if (fresh) {
        call->second = c_.call("chunks", params, operands);
        c_.moves(call->second, {functions::transfer_of(chunks_, m)});
      }
      const ir::TaskId task =
          c_.task(call->second, static_cast<uint32_t>(i),
                  functions::accesses_of(c_.program(), chunks_, operands, step.rank, i),
                  ir::Role::Comm, only(step.rank));
      for (uint32_t v : sources_of(step)) {
        const Arrival* a = arrival_of(step.rank, v);
        if (!a) continue;
        const int sender = f_.steps[a->from].rank;
        if (a->from == tasks_[i].step) continue;
        c_.wait(task, event(arrived_, "arrived", a->from, k, 0, arrives), RankRef::rank(sender));
        if (needs_echo(sender, step.rank))
          c_.signal(task, echo(*a, tasks_[i].step, k), RankRef::rank(sender));
      }
      std::vector<int> to_ranks = step.to;
      if (step.keep) to_ranks.push_back(step.rank);
      for (int to : to_ranks) {
        c_.signal(task, event(arrived_, "arrived", tasks_[i].step, k, 0, arrives),
                  RankRef::rank(to));
        const Arrival& a = *arrival_of(to, step.value);
        if (needs_echo(step.rank, to))
          for (uint32_t reader : a.readers) c_.wait(task, echo(a, reader, k), RankRef::rank(to), 2);
      }
    }
  }
  // The event by which a reader tells that a tile may be written again.
  ir::EventId echo(const Arrival& a, uint32_t reader, int64_t k) {
    size_t n = 0;
    while (a.readers[n] != reader) ++n;
    return event(read_, "read", a.from, k, n, ir::EventKind::Peer);
  }

  TileContext& c_;
  const ChunkFlow& f_;
  Tensors t_;
  Boxes boxes_;
  functions::Chunks chunks_;
  ir::BufferId slots_{};
  uint64_t all_ = 0;       // of a reduction: the set of all ranks
  bool sums_lie_ = false;  // whether unfinished sums lie in slots
  std::unordered_map<uint64_t, Arrival> arrivals_;
  std::vector<uint32_t> ordinal_;  // of a step, among those of its rank
  std::vector<uint32_t> depth_;
  std::vector<uint64_t> heard_;
  std::vector<Task> tasks_;
  std::map<std::tuple<uint32_t, int64_t, size_t>, ir::EventId> arrived_, read_;
};

}  // namespace

Cut choose_user_algorithm(const TileContext& c, const ir::UserAlgorithm& algorithm) {
  const ChunkFlow flow = flow_of(c, algorithm);
  const Tensors t = tensors_of(c);
  const int64_t blocks = in_blocks(c.op().kind) ? c.world() : 1;
  Cut cut = choose_exchange(c, t.x, t.rows, blocks);
  // Only the launch knows which tiles there are; packets of missing tiles would never come.
  if (ir::canonical(t.rows).is_constant())
    cut.method = flow.packets ? "packets" : cut.method;
  else
    cut.method = "stores";
  // A tile for each chunk, if there are as many elements, and no tile larger than a piece.
  const int64_t rows = c.range(ir::canonical(t.rows)).hi;
  int64_t most = std::max<int64_t>(1, (rows * t.x.cols + flow.parts - 1) / flow.parts);
  if (flow.unit) most = std::min(most, std::max<int64_t>(1, *flow.unit / ir::size_of(t.x.dtype)));
  int64_t &down = cut.tile[0], &across = cut.tile[1];
  if (down * across > most) {
    down = std::max<int64_t>(1, most / across);
    if (down * across > most) across = most >= 64 ? most / 64 * 64 : std::max<int64_t>(1, most);
  }
  return cut;
}

void tile_user_algorithm(TileContext& c, const ir::UserAlgorithm& algorithm) {
  const std::string& kind = c.op().kind;
  if (kind == "allreduce") c.promise(ir::CollectiveKind::AllReduce, reduction(c));
  if (kind == "reduce_scatter") c.promise(ir::CollectiveKind::ReduceScatter, reduction(c));
  if (kind == "allgather") c.promise(ir::CollectiveKind::AllGather);
  if (kind == "alltoall") c.promise(ir::CollectiveKind::AllToAll);
  if (kind == "broadcast")
    c.promise(ir::CollectiveKind::Broadcast, ir::Reduction::Sum, c.integer("root", 0));
  const ChunkFlow flow = flow_of(c, algorithm);
  Maker(c, flow).run();
}

}  // namespace maco::ops
