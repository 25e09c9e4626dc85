// Post-conditions of collectives. Chunks are followed tile by tile through the device functions
// that move them (collectives.cuh): `put` to peers' slots, `combine` reduces what arrived with what
// is here, `take` copies what arrived. A tile of a block is named by its number, whatever the dims:
// all calls of a collective cut their blocks the same way and at the same actual rows (checked), so
// that a tile is cut short where it is sent as it is where it arrives, and what holds for whole
// tiles holds for every value of the dims.
//
// Accesses are ordered and race-free by now, so that any topological order shows what every
// execution does. What a task does follows from its call's parameters and its tile; that its
// declared regions hold all of it is checked too.
#include "compiler/verify/contributions.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace maco::verify {
namespace {

using ir::Call;
using ir::Collective;
using ir::CollectiveKind;
using ir::id_of;
using ir::TaskId;

/// What a tile holds: block `block` (of the operand), tile `tile`, of these ranks.
struct Chunk {
  uint64_t ranks = 0;
  int64_t block = 0, tile = 0;
  bool reduced = false;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

bool is_collective(std::string_view op_kind) {
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Barrier); ++k)
    if (op_kind == name(static_cast<CollectiveKind>(k))) return true;
  return false;
}

/// How a call cuts and moves; compiler/ops/collectives.cpp and collectives.cuh say what the numbers
/// mean.
struct Geometry {
  int64_t world = 0, tiles = 0, cols = 0, BR = 0, BC = 0, across = 0, stride = 0;
  ir::ValueRef rows{};
  friend bool operator==(const Geometry&, const Geometry&) = default;
};
struct Move {
  enum class Kind : uint8_t { Put, Combine, Take } kind = Kind::Put;
  Geometry cut;
  int64_t mode = 0, peer = 0, slot_div = 1, reduce = 0;
  bool blocked = false, own_blocked = false, source_rows = false, packets = false, own = false,
       forward = false, forward_packets = false;
};

class Contributions {
 public:
  Contributions(const Model& model, const std::vector<Node>& order, Reporter& reporter)
      : m_(model), p_(model.program), order_(order), report_(reporter) {}

  void run() {
    std::unordered_map<std::string_view, size_t> by_op;
    for (size_t i = 0; i < p_.collectives.size(); ++i)
      if (!by_op.emplace(p_.collectives[i].op, i).second)
        report_.error(fmt::format("contributions: '{}' is promised twice", p_.collectives[i].op));
    // Whose result nobody promises can't be proved right.
    for (const Call& c : p_.calls)
      if (is_collective(c.op_kind) && !by_op.count(c.op) &&
          report_.error(fmt::format("contributions: nothing says what {} '{}' has to deliver",
                                    c.op_kind, c.op),
                        c.loc))
        break;
    std::vector<size_t> of(p_.calls.size(), p_.collectives.size());
    for (size_t c = 0; c < p_.calls.size(); ++c)
      if (const auto at = by_op.find(p_.calls[c].op); at != by_op.end()) of[c] = at->second;
    // The nodes of each collective, in order.
    std::vector<std::vector<Node>> nodes(p_.collectives.size());
    for (const Node n : order_)
      if (const size_t i = of[index(p_.tasks[n.task].call)]; i < nodes.size())
        nodes[i].push_back(n);
    for (size_t i = 0; i < nodes.size() && !report_.failed(); ++i)
      if (p_.collectives[i].kind != CollectiveKind::Barrier) follow(p_.collectives[i], nodes[i]);
    report_.summarise("wrong contributions");
  }

 private:
  // --- calls ---

  template <class T>
  bool get(const Call& call, std::string_view name, T& value) {
    for (const ir::Param& p : call.params) {
      if (p.name != name) continue;
      if (const T* v = std::get_if<T>(&p.value)) {
        value = *v;
        return true;
      }
    }
    report_.error(fmt::format("contributions: {} of '{}' has no parameter '{}'", call.function,
                              call.op, name),
                  call.loc);
    return false;
  }
  int64_t most(const ir::ValueRef& v) const {
    if (const int64_t* n = std::get_if<int64_t>(&v.v)) return *n;
    return p_.values[std::get<uint32_t>(v.v)].range.hi;
  }
  int64_t least(const ir::ValueRef& v) const {
    if (const int64_t* n = std::get_if<int64_t>(&v.v)) return *n;
    return p_.values[std::get<uint32_t>(v.v)].range.lo;
  }

  std::optional<Move> move_of(const Collective& x, const Call& call) {
    Move v;
    if (call.function == "put")
      v.kind = Move::Kind::Put;
    else if (call.function == "combine")
      v.kind = Move::Kind::Combine;
    else if (call.function == "take")
      v.kind = Move::Kind::Take;
    else {
      report_.error(fmt::format("contributions: what '{}' of '{}' does isn't known, so that "
                                "nothing can be said of its result",
                                call.function, call.op),
                    call.loc);
      return std::nullopt;
    }
    Geometry& g = v.cut;
    if (!get(call, "W", g.world) || !get(call, "T", g.tiles) || !get(call, "cols", g.cols) ||
        !get(call, "BR", g.BR) || !get(call, "BC", g.BC) || !get(call, "across", g.across) ||
        !get(call, "stride", g.stride) || !get(call, "rows", g.rows) ||
        !get(call, "mode", v.mode) || !get(call, "peer", v.peer) ||
        !get(call, "blocked", v.blocked) || !get(call, "own_blocked", v.own_blocked) ||
        !get(call, "slot_div", v.slot_div) || !get(call, "source_rows", v.source_rows) ||
        !get(call, "packets", v.packets))
      return std::nullopt;
    if (v.kind == Move::Kind::Take && !get(call, "own", v.own)) return std::nullopt;
    if (v.kind == Move::Kind::Combine &&
        (!get(call, "reduce", v.reduce) || !get(call, "forward", v.forward) ||
         !get(call, "forward_packets", v.forward_packets)))
      return std::nullopt;
    const auto wrong = [&](std::string what) {
      report_.error(fmt::format("contributions: {} of '{}' {}", call.function, call.op, what),
                    call.loc);
      return std::nullopt;
    };
    if (g.world != m_.world || g.tiles < 1 || g.BR < 1 || g.BC < 1 || g.cols < 1 || g.across < 1 ||
        v.slot_div < 1 || v.peer < 0 || v.peer >= m_.world)
      return wrong("has impossible parameters");
    if (g.across * g.BC < g.cols || g.tiles % g.across != 0 ||
        g.tiles / g.across * g.BR < most(g.rows))
      return wrong("leaves elements out: its tiles don't cover its blocks");
    if ((g.across - 1) * g.BC >= g.cols || g.stride < g.BR * g.BC)
      return wrong("has tiles that overlap");
    if (v.kind == Move::Kind::Combine && v.reduce != static_cast<int64_t>(x.reduce))
      return wrong(fmt::format("doesn't reduce as '{}' has to", name(x.reduce)));
    const size_t wanted = v.kind == Move::Kind::Combine ? (v.forward ? 4 : 3) : 2;
    if (call.operands.size() != wanted)
      return wrong(fmt::format("has {} operands", call.operands.size()));
    const bool from_in = v.kind != Move::Kind::Take || v.own, to_out = v.kind != Move::Kind::Put;
    if (from_in && call.operands[0] != x.in)
      return wrong(
          fmt::format("reads '{}' instead of '{}'", p_[call.operands[0]].name, p_[x.in].name));
    const ir::BufferId out = call.operands[v.kind == Move::Kind::Combine ? 2 : 1];
    if (to_out && out != x.out)
      return wrong(fmt::format("writes '{}' instead of '{}'", p_[out].name, p_[x.out].name));
    const auto slot_fits = [&](ir::BufferId id, bool packets, int64_t rows, int64_t div) {
      const ir::Buffer& b = p_[id];
      return b.kind == ir::BufferKind::Slot && b.packets == packets && b.max_rows == rows &&
             b.cols == (g.tiles + div - 1) / div * g.stride;
    };
    const int64_t rows = v.source_rows ? g.world : 1;
    if (v.kind == Move::Kind::Put && !slot_fits(call.operands[1], v.packets, rows, v.slot_div))
      return wrong(fmt::format("takes '{}' for other slots than it is", p_[call.operands[1]].name));
    if (v.kind == Move::Kind::Take && !v.own &&
        !slot_fits(call.operands[0], v.packets, rows, v.slot_div))
      return wrong(fmt::format("takes '{}' for other slots than it is", p_[call.operands[0]].name));
    if (v.kind == Move::Kind::Combine &&
        (!v.source_rows || !slot_fits(call.operands[1], v.packets, g.world, v.slot_div) ||
         (v.forward && !slot_fits(call.operands[3], v.forward_packets, 1, 1))))
      return wrong("takes its slots for others than they are");
    return v;
  }

  // --- one collective ---

  struct Slots {
    std::vector<Chunk> chunks;  // by rank, row and place; no ranks: nothing of this launch
    int64_t rows = 0, places = 0;
  };
  Slots& slots(ir::BufferId id, const Geometry& g) {
    Slots& s = slots_[index(id)];
    if (s.chunks.empty()) {
      s.rows = p_[id].max_rows;
      s.places = p_[id].cols / g.stride;
      s.chunks.assign(static_cast<size_t>(m_.world * s.rows * s.places), {});
    }
    return s;
  }
  static Chunk& at(Slots& s, int rank, int64_t row, int64_t place) {
    return s.chunks[static_cast<size_t>((rank * s.rows + row) * s.places + place)];
  }

  void follow(const Collective& x, const std::vector<Node>& nodes) {
    slots_.clear();
    x_ = &x;
    const uint64_t all = m_.world == 64 ? ~uint64_t{0} : (uint64_t{1} << m_.world) - 1;
    world_mask_ = all;
    out_blocks_ =
        x.kind == CollectiveKind::AllGather || x.kind == CollectiveKind::AllToAll ? m_.world : 1;
    std::map<size_t, Move> moves;
    const Geometry* cut = nullptr;
    for (const Node n : nodes) {
      const size_t c = index(p_.tasks[n.task].call);
      if (moves.count(c)) continue;
      const auto move = move_of(x, p_.calls[c]);
      if (!move) return;
      const auto [where, fresh] = moves.emplace(c, *move);
      if (cut && *cut != where->second.cut) {
        report_.error(
            fmt::format("contributions: the calls of '{}' cut their blocks into different tiles",
                        x.op),
            p_.calls[c].loc);
        return;
      }
      cut = &where->second.cut;
    }
    if (!cut) {
      report_.error(fmt::format("contributions: nothing does what '{}' promises", x.op));
      return;
    }
    cut_ = *cut;
    if (!fits(x)) return;
    out_.assign(static_cast<size_t>(m_.world * out_blocks_ * cut_.tiles), false);
    for (const Node n : nodes) {
      const Move& move = moves.at(index(p_.tasks[n.task].call));
      // A node of a symmetric model is the task of every rank.
      for (int rank = m_.symmetric ? 0 : n.rank; rank < (m_.symmetric ? m_.world : n.rank + 1);
           ++rank)
        if (m_.runs(n.task, rank) && !step(n.task, rank, move)) return;
    }
    size_t missing = 0, first = 0;
    for (size_t i = out_.size(); i-- > 0;)
      if (!out_[i]) ++missing, first = i;
    if (missing == 0) return;
    const auto tiles = static_cast<size_t>(cut_.tiles), blocks = static_cast<size_t>(out_blocks_);
    report_.error(fmt::format("contributions: '{}' leaves tile {}{} of '{}' on rank {} unwritten{}",
                              x.op, first % tiles,
                              blocks > 1 ? fmt::format(" of block {}", first / tiles % blocks) : "",
                              p_[x.out].name, first / tiles / blocks,
                              missing > 1 ? fmt::format(", and {} more", missing - 1) : ""),
                  loc_of(x));
  }
  ir::Loc loc_of(const Collective& x) const {
    for (const Call& c : p_.calls)
      if (c.op == x.op) return c.loc;
    return {};
  }
  // The tensors are as large as the blocks together.
  bool fits(const Collective& x) {
    const int64_t block = most(cut_.rows) * cut_.cols;
    const bool in_blocks =
        x.kind == CollectiveKind::ReduceScatter || x.kind == CollectiveKind::AllToAll;
    const int64_t in = block * (in_blocks ? m_.world : 1), out = block * out_blocks_;
    if (p_[x.in].max_elements() == in && p_[x.out].max_elements() == out) return true;
    report_.error(fmt::format("contributions: '{}' moves {} elements from '{}' of {} to '{}' of "
                              "{}, where {} would be",
                              x.op, in, p_[x.in].name, p_[x.in].max_elements(), p_[x.out].name,
                              p_[x.out].max_elements(), out),
                  loc_of(x));
    return false;
  }

  // --- one task on one rank ---

  bool step(uint32_t task, int rank, const Move& v) {
    const ir::Task& t = p_.tasks[task];
    const Call& call = p_[t.call];
    const Geometry& g = v.cut;
    const bool by_block = v.mode == 1;
    const int64_t tile = by_block ? t.tile % g.tiles : t.tile;
    if (tile >= g.tiles || (by_block && t.tile / g.tiles >= g.world) || v.mode < 0 || v.mode > 4)
      return fail(task, rank, fmt::format("is tile {} of {}", t.tile, g.tiles));
    const int64_t peer = v.mode == 1   ? t.tile / g.tiles
                         : v.mode == 2 ? t.tile % g.world
                         : v.mode == 4 ? (rank + v.peer) % g.world
                                       : v.peer;
    const int64_t place = tile / v.slot_div;

    switch (v.kind) {
      case Move::Kind::Put: {
        if (v.mode == 0 && v.blocked) return fail(task, rank, "sends one block to all");
        const int64_t block = v.blocked ? peer : 0;
        if (!reads_tensor(task, rank, x_->in, block, tile)) return false;
        const int64_t row = v.source_rows ? rank : 0;
        Slots& s = slots(call.operands[1], g);
        for (int to = 0; to < m_.world; ++to) {
          if (v.mode == 0 ? to == rank : to != peer) continue;
          if (!slot_declared(task, rank, call.operands[1], true, to, row, place)) return false;
          at(s, to, row, place) = {uint64_t{1} << rank, block, tile, false};
        }
        return true;
      }
      case Move::Kind::Combine: {
        const int64_t block = v.own_blocked ? rank : 0;
        if (!reads_tensor(task, rank, x_->in, block, tile)) return false;
        Chunk sum{uint64_t{1} << rank, block, tile, true};
        Slots& s = slots(call.operands[1], g);
        for (int from = 0; from < m_.world; ++from) {
          if (from == rank) continue;
          if (!slot_declared(task, rank, call.operands[1], false, rank, from, place)) return false;
          const Chunk& c = at(s, rank, from, place);
          if (!arrived(task, rank, c)) return false;
          if (c.block != block || c.tile != tile)
            return fail(task, rank,
                        fmt::format("adds {} to {}", text(c), text({0, block, tile, false})));
          if (c.ranks & sum.ranks)
            return fail(
                task, rank,
                fmt::format("adds {} twice", text({c.ranks & sum.ranks, block, tile, false})));
          sum.ranks |= c.ranks;
        }
        if (!writes_out(task, rank, 0, tile, sum)) return false;
        if (!v.forward) return true;
        Slots& results = slots(call.operands[3], g);
        if (t.tile >= results.places)
          return fail(task, rank, "sends its result outside of the slots");
        for (int to = 0; to < m_.world; ++to) {
          if (to == rank) continue;
          if (!slot_declared(task, rank, call.operands[3], true, to, 0, t.tile)) return false;
          at(results, to, 0, t.tile) = sum;
        }
        return true;
      }
      case Move::Kind::Take: {
        const int64_t source = v.own ? rank : peer, block = v.blocked ? source : 0;
        if (v.own) {
          const int64_t from = v.own_blocked ? rank : 0;
          return reads_tensor(task, rank, x_->in, from, tile) &&
                 writes_out(task, rank, block, tile, {uint64_t{1} << rank, from, tile, false});
        }
        const int64_t row = v.source_rows ? source : 0;
        Slots& s = slots(call.operands[0], g);
        if (!slot_declared(task, rank, call.operands[0], false, rank, row, place)) return false;
        const Chunk& c = at(s, rank, row, place);
        return arrived(task, rank, c) && writes_out(task, rank, block, tile, c);
      }
    }
    return true;
  }

  bool arrived(uint32_t task, int rank, const Chunk& c) {
    return c.ranks != 0 ||
           fail(task, rank, "takes a slot that nothing was put into in this launch");
  }

  /// What a tile of the result has to be.
  Chunk expected(int rank, int64_t block, int64_t tile) const {
    const auto only = [](int64_t r) { return uint64_t{1} << r; };
    switch (x_->kind) {
      case CollectiveKind::AllReduce: return {world_mask_, 0, tile, true};
      case CollectiveKind::AllGather: return {only(block), 0, tile, false};
      case CollectiveKind::ReduceScatter: return {world_mask_, rank, tile, true};
      case CollectiveKind::AllToAll: return {only(block), rank, tile, false};
      case CollectiveKind::Broadcast: return {only(x_->peer), 0, tile, false};
      case CollectiveKind::RingShift:
        return {only(((rank - x_->peer) % m_.world + m_.world) % m_.world), 0, tile, false};
      case CollectiveKind::Barrier: break;
    }
    return {};
  }
  bool writes_out(uint32_t task, int rank, int64_t block, int64_t tile, const Chunk& c) {
    if (block >= out_blocks_)
      return fail(task, rank, fmt::format("writes block {} of {}", block, out_blocks_));
    if (!declared(task, rank, x_->out, true, block, tile)) return false;
    Chunk want = expected(rank, block, tile);
    if (m_.world == 1) want.reduced = c.reduced;
    if (c != want) {
      const uint64_t missing = want.ranks & ~c.ranks;
      std::string why;
      if (missing && c.block == want.block && c.tile == want.tile && (c.ranks & ~want.ranks) == 0)
        why = fmt::format(": that of {} is absent", ranks_text(missing));
      return fail(task, rank,
                  fmt::format("makes {}tile {} of '{}' from {} instead of {}{}",
                              out_blocks_ > 1 ? fmt::format("block {}, ", block) : "", tile,
                              p_[x_->out].name, text(c), text(want), why));
    }
    out_[static_cast<size_t>((rank * out_blocks_ + block) * cut_.tiles + tile)] = true;
    return true;
  }

  // --- what a task declares ---

  bool reads_tensor(uint32_t task, int rank, ir::BufferId b, int64_t block, int64_t tile) {
    return declared(task, rank, b, false, block, tile);
  }
  // Tile `tile` of block `block` of a tensor, wherever the dims put it.
  bool declared(uint32_t task, int rank, ir::BufferId b, bool write, int64_t block, int64_t tile) {
    const int64_t r0 = tile / cut_.across * cut_.BR, c0 = tile % cut_.across * cut_.BC;
    const int64_t most_rows = most(cut_.rows), r1 = std::min(r0 + cut_.BR, most_rows);
    const int64_t from = block * least(cut_.rows) + r0, to = block * most_rows + r1,
                  c1 = std::min(c0 + cut_.BC, cut_.cols);
    for (const ir::Access& a : p_.tasks[task].accesses) {
      const ir::Region& r = a.region;
      if (r.buffer != b || a.writes() != write || r.where != ir::RankRef::self()) continue;
      const int64_t shift = shift_of(p_, r, rank).lo;
      if (r.pitch == cut_.cols && r.r0 + shift <= from && to <= r.r1 + shift && r.c0 <= c0 &&
          c1 <= r.c1)
        return true;
    }
    return fail(task, rank,
                fmt::format("{} rows {} to {}, columns {} to {} of '{}' without declaring it",
                            write ? "writes" : "reads", from, to, c0, c1, p_[b].name));
  }
  bool slot_declared(uint32_t task, int rank, ir::BufferId b, bool write, int memory, int64_t row,
                     int64_t place) {
    const int64_t c0 = place * cut_.stride,
                  c1 = c0 + std::min(cut_.BR, most(cut_.rows)) * std::min(cut_.BC, cut_.cols);
    for (const ir::Access& a : p_.tasks[task].accesses) {
      const ir::Region& r = a.region;
      if (r.buffer != b || a.writes() != write || !names(r.where, rank, memory, m_.world)) continue;
      const int64_t shift = shift_of(p_, r, rank).lo;
      if (r.pitch == p_[b].cols && r.r0 + shift <= row && row < r.r1 + shift && r.c0 <= c0 &&
          c1 <= r.c1)
        return true;
    }
    return fail(
        task, rank,
        fmt::format("{} row {}, columns {} to {} of slot '{}' on rank {} without declaring it",
                    write ? "writes" : "reads", row, c0, c1, p_[b].name, memory));
  }

  // --- what is wrong ---

  static std::string ranks_text(uint64_t ranks) {
    std::string s;
    for (int r = 0; r < 64; ++r)
      if (ranks >> r & 1) s += fmt::format("{}{}", s.empty() ? "" : ", ", r);
    return (ranks & (ranks - 1) ? "ranks " : "rank ") + s;
  }
  std::string text(const Chunk& c) const {
    std::string s = fmt::format("tile {}", c.tile);
    if (x_->kind == CollectiveKind::ReduceScatter || x_->kind == CollectiveKind::AllToAll)
      s += fmt::format(" of block {}", c.block);
    if (c.ranks) s += fmt::format(" of {}", ranks_text(c.ranks));
    return c.reduced ? "the reduction of " + s : s;
  }
  bool fail(uint32_t task, int rank, const std::string& what) {
    report_.error(id_of<TaskId>(task), fmt::format("contributions: {} on rank {} {}",
                                                   describe(p_, id_of<TaskId>(task)), rank, what));
    return false;
  }

  const Model& m_;
  const ir::Program& p_;
  const std::vector<Node>& order_;
  Reporter& report_;
  const Collective* x_ = nullptr;
  uint64_t world_mask_ = 0;
  int64_t out_blocks_ = 1;
  Geometry cut_;
  std::unordered_map<size_t, Slots> slots_;  // by buffer
  std::vector<bool> out_;                    // by rank, block and tile: right
};

}  // namespace

void check_contributions(const Model& model, const std::vector<Node>& order, Reporter& reporter) {
  Contributions(model, order, reporter).run();
}

}  // namespace maco::verify
