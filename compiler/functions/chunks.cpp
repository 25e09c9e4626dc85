#include "compiler/functions/chunks.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "compiler/functions/exchange.h"
#include "compiler/functions/families.h"

namespace maco::functions {

namespace {

using ir::AccessKind;
using ir::Param;
using ir::RankRef;
using ir::Region;

// The table holds where each move begins. Then it holds for each move its tile, how many places it
// reads and writes, whether it is whole, and the places.
constexpr uint64_t kMostTiles = uint64_t{1} << 31;
constexpr int64_t kMostExtent = int64_t{1} << 30;  // of a tile; nothing overflows
constexpr int kPlaceRank = 8, kPlaceCell = 32, kMoveTo = 16, kMoveWhole = 32;

uint64_t word_of(const ChunkPlace& p) {
  return static_cast<uint64_t>(p.slot) | static_cast<uint64_t>(p.rank) << kPlaceRank |
         static_cast<uint64_t>(p.cell) << kPlaceCell;
}
ChunkPlace place_of(uint64_t word) {
  return {(word & 1) != 0, static_cast<int64_t>(word >> kPlaceRank & 0xff),
          static_cast<int64_t>(word >> kPlaceCell)};
}

ir::Table table_of(const std::vector<ChunkMove>& moves) {
  ir::Table table;
  table.words.resize(moves.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    const ChunkMove& m = moves[i];
    table.words[i] = table.words.size();
    table.words.push_back(static_cast<uint64_t>(m.tile));
    table.words.push_back(static_cast<uint64_t>(m.from.size()) |
                          static_cast<uint64_t>(m.to.size()) << kMoveTo |
                          static_cast<uint64_t>(m.whole) << kMoveWhole);
    for (const auto* places : {&m.from, &m.to})
      for (const ChunkPlace& p : *places) table.words.push_back(word_of(p));
  }
  return table;
}
std::optional<std::vector<ChunkMove>> moves_of(const ir::Table& table) {
  const std::vector<uint64_t>& w = table.words;
  std::vector<ChunkMove> moves;
  if (w.empty()) return moves;
  const uint64_t count = w[0];
  if (count > w.size()) return std::nullopt;
  uint64_t end = count;  // of the moves before this one: moves follow each other
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = w[i];
    if (at != end || w.size() - at < 2 || w[at] > kMostTiles) return std::nullopt;
    const uint64_t from = w[at + 1] & 0xffff, to = w[at + 1] >> kMoveTo & 0xffff;
    if (from + to > w.size() - at - 2) return std::nullopt;
    ChunkMove m;
    m.tile = static_cast<int64_t>(w[at]);
    m.whole = (w[at + 1] >> kMoveWhole & 1) != 0;
    for (uint64_t k = 0; k < from; ++k) m.from.push_back(place_of(w[at + 2 + k]));
    for (uint64_t k = 0; k < to; ++k) m.to.push_back(place_of(w[at + 2 + from + k]));
    end = at + 2 + from + to;
    moves.push_back(std::move(m));
  }
  return moves;
}

template <class T>
bool get(const ir::Call& call, std::string_view name, T& value) {
  for (const Param& p : call.params)
    if (p.name == name)
      if (const T* v = std::get_if<T>(&p.value)) {
        value = *v;
        return true;
      }
  return false;
}

}  // namespace

std::vector<Param> params_of(const Chunks& c) {
  return {{"W", c.world},
          {"cols", c.cols},
          {"BR", c.BR},
          {"BC", c.BC},
          {"across", c.across},
          {"stride", c.stride},
          {"rows", c.rows},
          {"x_blocks", c.x_blocks},
          {"y_blocks", c.y_blocks},
          {"slots", c.slots},
          {"packets", c.packets},
          {"reduce", ir::Word{std::string(name(c.reduce))}},
          {"X", c.x},
          {"Y", c.y},
          {"Part", c.part},
          {"moves", table_of(c.moves)}};
}

bool is_chunks(std::string_view function) { return function == "chunks"; }

std::optional<Chunks> chunks_of(const ir::Call& call) {
  if (!is_chunks(call.function)) return std::nullopt;
  Chunks c;
  ir::Word reduce;
  ir::Table table;
  const bool read = get(call, "W", c.world) && get(call, "cols", c.cols) && get(call, "BR", c.BR) &&
                    get(call, "BC", c.BC) && get(call, "across", c.across) &&
                    get(call, "stride", c.stride) && get(call, "rows", c.rows) &&
                    get(call, "x_blocks", c.x_blocks) && get(call, "y_blocks", c.y_blocks) &&
                    get(call, "slots", c.slots) && get(call, "packets", c.packets) &&
                    get(call, "reduce", reduce) && get(call, "X", c.x) && get(call, "Y", c.y) &&
                    get(call, "Part", c.part) && get(call, "moves", table);
  const auto fits = [](int64_t n) { return n >= 1 && n <= kMostExtent; };
  if (!read || !fits(c.across) || !fits(c.BR) || !fits(c.BC) || !fits(c.stride) || c.world < 1 ||
      call.operands.size() != (c.slots ? 3u : 2u))
    return std::nullopt;
  constexpr ir::Reduction all[] = {ir::Reduction::Sum, ir::Reduction::Avg, ir::Reduction::Max,
                                   ir::Reduction::Min};
  const auto found = std::find_if(std::begin(all), std::end(all),
                                  [&](ir::Reduction r) { return name(r) == reduce.text; });
  auto moves = moves_of(table);
  if (found == std::end(all) || !moves) return std::nullopt;
  c.reduce = *found;
  c.moves = std::move(*moves);
  return c;
}

std::vector<ir::Access> accesses_of(const ir::Program& program, const Chunks& c,
                                    const std::vector<ir::BufferId>& operands, int rank,
                                    size_t task) {
  const ChunkMove& m = c.moves[task];
  const auto* fixed = std::get_if<int64_t>(&c.rows.v);
  const int64_t most = fixed ? *fixed : program.values[std::get<uint32_t>(c.rows.v)].range.hi;
  Region box;
  box.pitch = c.cols;
  box.r0 = m.tile / c.across * c.BR;
  box.c0 = m.tile % c.across * c.BC;
  box.r1 = std::clamp(most, box.r0, box.r0 + c.BR);
  box.c1 = std::min(box.c0 + c.BC, c.cols);
  const auto region = [&](const ChunkPlace& p, ir::BufferId tensor, bool blocks, RankRef where) {
    Region r;
    if (p.slot) {
      r.buffer = operands[2];
      r.pitch = program[r.buffer].cols;
      r.r1 = 1;
      r.c0 = p.cell * c.stride;
      r.c1 = r.c0 + (box.r1 - box.r0) * (box.c1 - box.c0);
      r.where = where;
      return r;
    }
    r = box;
    r.buffer = tensor;
    if (!blocks) return r;
    r.block.ref = RankRef::rank(static_cast<int32_t>(p.rank));
    if (fixed)
      r.block.rows = *fixed;
    else
      r.block.value = std::get<uint32_t>(c.rows.v);
    return r;
  };
  std::vector<ir::Access> accesses;
  for (const ChunkPlace& p : m.from)
    accesses.push_back({AccessKind::Read, region(p, operands[0], c.x_blocks, RankRef::self())});
  for (const ChunkPlace& p : m.to) {
    const RankRef where =
        p.rank == rank ? RankRef::self() : RankRef::rank(static_cast<int32_t>(p.rank));
    const Region r = region(p, operands[1], c.y_blocks, where);
    // Where only the launch knows a block's height, the region covers more than is written.
    accesses.push_back({p.slot || r.block.value ? AccessKind::MayWrite : AccessKind::Write, r});
  }
  return accesses;
}

ir::Transfer transfer_of(const Chunks& c, const ChunkMove& m) {
  ir::Transfer t;
  uint32_t place = 0;
  for (size_t i = 0; i < m.from.size(); ++i) t.from.push_back(place++);
  for (size_t i = 0; i < m.to.size(); ++i) t.to.push_back(place++);
  if (m.from.size() == 1) return t;
  t.kind = ir::Transfer::Kind::Reduce;
  t.reduce = c.reduce == ir::Reduction::Avg && !m.whole ? ir::Reduction::Sum : c.reduce;
  return t;
}

namespace {

// Calls of one op have one table, which is read once for those that follow each other.
std::shared_ptr<const Chunks> shared_chunks(const ir::Call& call) {
  struct Last {
    std::vector<Param> params;
    std::vector<ir::BufferId> operands;
    std::shared_ptr<const Chunks> chunks;
  };
  thread_local Last last;
  if (!last.chunks || last.params != call.params || last.operands != call.operands) {
    auto read = chunks_of(call);
    last = {call.params, call.operands,
            read ? std::make_shared<const Chunks>(std::move(*read)) : nullptr};
  }
  return last.chunks;
}

Touches touches(const ir::Program& p, const ir::Call& call) {
  const std::shared_ptr<const Chunks> c = shared_chunks(call);
  if (!c || c->world != p.world)
    return {.wrong = "hasn't the parameters, operands and rank that it takes"};
  // Each task runs on one rank.
  const auto moves = [c, &p, &call](const ir::Task& task) {
    return task.tile < c->moves.size() && std::popcount(task.ranks) == 1 &&
           std::countr_zero(task.ranks) < p.world &&
           call.transfers == std::vector{transfer_of(*c, c->moves[task.tile])};
  };
  const auto touched = [c, &p, &call](const ir::Task& task) {
    return task.accesses ==
           accesses_of(p, *c, call.operands, std::countr_zero(task.ranks), task.tile);
  };
  return {.moves = moves, .touches = touched};
}

}  // namespace

std::vector<Function> chunk_functions() {
  std::vector<std::string> reductions;
  for (const auto r :
       {ir::Reduction::Sum, ir::Reduction::Avg, ir::Reduction::Max, ir::Reduction::Min})
    reductions.emplace_back(name(r));
  return {
      {.name = "chunks",
       .params = {integer("W"), integer("cols"), integer("BR"), integer("BC"), integer("across"),
                  integer("stride"), value("rows"), flag("x_blocks"), flag("y_blocks"),
                  flag("slots"), flag("packets"), word("reduce", "ops::Reduction", reductions),
                  dtype("X"), dtype("Y"), dtype("Part"), table("moves")},
       .operands = {reads("x", "X"),
                    writes("y", "Y"),
                    {.name = "slots",
                     .access = functions::Access::ReadWrite,
                     .count = Count::Optional,
                     .dtype = "Part"}},
       .source = {{"ops/collectives.cuh", "ops/chunks.cuh"}},
       .touches = touches}};
}

}  // namespace maco::functions
