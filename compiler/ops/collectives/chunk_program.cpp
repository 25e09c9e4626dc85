#include "compiler/ops/collectives/chunk_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/ops/attrs.h"
#include "compiler/ops/collectives/chunk_flow.h"
#include "ir/ranks.h"

namespace maco::ops {

using ir::ChunkOp;
using ir::ChunkRange;
using ir::Expr;

int64_t ChunkShape::memory() const {
  const int64_t most = std::max(chunks, out_chunks);
  return (in_place ? most : chunks + out_chunks) + scratch;
}
// In place, the smaller of the two tensors is the rank's own block of the larger one.
int64_t ChunkShape::input_cell(int rank, int64_t chunk) const {
  return in_place && op == "allgather" ? rank * parts + chunk : chunk;
}
int64_t ChunkShape::output_cell(int rank, int64_t chunk) const {
  if (!in_place) return chunks + chunk;
  return op == "reduce_scatter" ? rank * parts + chunk : chunk;
}
std::string ChunkShape::name(int rank, int64_t cell) const {
  if (is_scratch(cell)) return fmt::format("scratch[{}]", cell - (memory() - scratch));
  if (!in_place)
    return cell < chunks ? fmt::format("input[{}]", cell)
                         : fmt::format("output[{}]", cell - chunks);
  if (op != "reduce_scatter") return fmt::format("output[{}]", cell);
  const int64_t own = cell - rank * parts;
  return own >= 0 && own < parts ? fmt::format("output[{}]", own) : fmt::format("input[{}]", cell);
}
int64_t ChunkShape::wanted_chunk(int rank, int64_t chunk) const {
  if (op == "allgather") return chunk % parts;
  if (op == "reduce_scatter") return rank * parts + chunk;
  if (op == "alltoall") return rank * parts + chunk % parts;
  return chunk;
}
uint64_t ChunkShape::wanted_ranks(int64_t chunk) const {
  if (reduces()) return ir::all_ranks(world);
  if (op == "broadcast") return uint64_t{1} << root;
  return uint64_t{1} << (chunk / parts);
}

namespace {

class Reader {
 public:
  Reader(const ir::Graph& graph, const ir::Op& op, const ir::UserAlgorithm& algorithm,
         ir::Diagnostics& diagnostics)
      : graph_(graph), op_(op), a_(algorithm), d_(diagnostics) {}

  std::optional<ChunkProgram> run() {
    const int before = d_.errors();
    if (!read_shape()) return std::nullopt;
    for (const Expr& e : a_.semaphores)
      p_.semaphores.push_back(number(e, 0, a_.loc, "the first value of a semaphore", 0, 1 << 20));
    for (const ChunkOp& op : a_.ops) {
      const bool moves = !op.from.empty();
      p_.ordered = p_.ordered || !moves || op.block;
      p_.packets = p_.packets || op.packets;
      for (int r = 0; r < p_.shape.world; ++r)
        if (!op.condition || number(*op.condition, r, op.loc, "'if'", INT64_MIN, INT64_MAX) != 0)
          if (!(moves ? move(op, r) : synchronise(op, r))) return std::nullopt;
      if (d_.errors() > before + kMostErrors) break;
    }
    if (d_.errors() > before) return std::nullopt;
    return std::move(p_);
  }

 private:
  static constexpr int kMostErrors = 20;

  std::optional<int64_t> value(const Expr& e, int rank) const {
    return ir::evaluate(e,
                        [&](std::string_view name) -> std::optional<int64_t> {
                          if (name == "world") return graph_.world;
                          if (name == "rank") return rank;
                          return std::nullopt;
                        })
        .value;
  }
  // Evaluates a number. Reports one that isn't in [lo, hi], and returns lo for it.
  int64_t number(const Expr& e, int rank, ir::Loc loc, const std::string& what, int64_t lo,
                 int64_t hi) {
    const auto n = value(e, rank);
    if (n && *n >= lo && *n <= hi) return *n;
    if (!n)
      d_.error(loc, fmt::format("{} has no value on rank {}", what, rank));
    else
      d_.error(loc,
               fmt::format("{} is {} on rank {}, but must be {} to {}", what, *n, rank, lo, hi));
    return lo;
  }

  // Where the op names the collective.
  ir::Loc use_loc() const {
    const auto at = op_.attrs.find("algorithm");
    return at == op_.attrs.end() ? op_.loc : at->second.loc;
  }

  bool read_shape() {
    ChunkShape& s = p_.shape;
    const int before = d_.errors();
    s.op = op_.kind;
    s.world = static_cast<int>(graph_.world);
    s.in_place = a_.in_place;
    if (a_.world) {
      const auto world = value(*a_.world, 0);
      if (world != graph_.world) {
        d_.error(use_loc(), fmt::format("collective '{}' is for {} ranks, but the graph has {}",
                                        a_.name, a_.world->str(), graph_.world));
        d_.note(a_.loc, "it is defined here");
        return false;
      }
    }
    if (a_.of != op_.kind) {
      d_.error(use_loc(), fmt::format("collective '{}' is one of '{}', which '{}' isn't", a_.name,
                                      a_.of, op_.kind));
      d_.note(a_.loc, "it is defined here");
      return false;
    }
    s.chunks = number(a_.chunks, 0, a_.loc, "'chunks'", 1, kMostChunks);
    s.scratch = number(a_.scratch, 0, a_.loc, "'scratch'", 0, kMostChunks);
    const bool in_blocks = op_.kind == "reduce_scatter" || op_.kind == "alltoall";
    const bool out_blocks = op_.kind == "allgather" || op_.kind == "alltoall";
    if (in_blocks && s.chunks % s.world != 0)
      d_.error(a_.loc, fmt::format("the input of '{}' has a block for each of {} ranks, but {} "
                                   "chunks are no multiple of that",
                                   op_.kind, s.world, s.chunks));
    s.parts = in_blocks ? s.chunks / s.world : s.chunks;
    s.out_chunks = out_blocks ? s.parts * s.world : s.parts;
    if (op_.kind == "broadcast")
      if (const auto root = attr_expr(graph_, op_, "root")) s.root = root->constant().value_or(0);
    if (s.memory() * s.world > kMostChunkSteps * 4)
      d_.error(a_.loc,
               fmt::format("{} ranks with {} chunks each are too many", s.world, s.memory()));
    return d_.errors() == before;
  }

  bool count(const ChunkOp& op) {
    if (static_cast<int64_t>(p_.actions.size()) < kMostChunkSteps) return true;
    d_.error(op.loc, fmt::format("collective '{}' has more than {} statements, of all ranks and "
                                 "chunks together",
                                 a_.name, kMostChunkSteps));
    return false;
  }

  ChunkAction action(const ChunkOp& op, int rank, ChunkAction::Kind kind) {
    ChunkAction x;
    x.kind = kind;
    x.op = &op;
    x.rank = rank;
    if (op.block) x.block = number(*op.block, rank, op.loc, "'block'", 0, kMostChunks);
    if (op.unit) {
      x.unit = number(*op.unit, rank, op.loc, "'unit'", 1, INT64_MAX);
      p_.unit = std::min(p_.unit.value_or(x.unit), x.unit);
    }
    return x;
  }

  struct Cells {
    int rank = 0;
    std::vector<int64_t> cells;
  };
  // Whether `e` means all ranks (true) or all others (false); nothing if it is an expression for
  // one rank.
  static std::optional<bool> means_all(const Expr& e) {
    if (e == Expr::var(ir::kAllRanks)) return true;
    if (e == Expr::var(ir::kOtherRanks)) return false;
    return std::nullopt;
  }
  // The ranks that `e` means for `rank`, in ascending order.
  std::vector<int> ranks_of(const Expr& e, int rank, ir::Loc loc, const char* what) {
    const auto all = means_all(e);
    if (!all) return {static_cast<int>(number(e, rank, loc, what, 0, p_.shape.world - 1))};
    std::vector<int> ranks;
    for (int r = 0; r < p_.shape.world; ++r)
      if (*all || r != rank) ranks.push_back(r);
    return ranks;
  }

  // Returns false, after reporting, if there is no such chunk.
  bool add_cells(const ChunkRange& range, int rank, std::vector<Cells>& list) {
    const int before = d_.errors();
    const std::vector<int> ranks =
        range.rank ? ranks_of(*range.rank, rank, range.loc, "the rank behind '@'")
                   : std::vector{rank};
    if (d_.errors() > before) return false;
    for (int of : ranks) {
      auto cells = cells_of(range, rank, of);
      if (!cells) return false;
      list.push_back(std::move(*cells));
    }
    return true;
  }
  std::optional<Cells> cells_of(const ChunkRange& range, int rank, int of) {
    const ChunkShape& s = p_.shape;
    Cells result;
    const int before = d_.errors();
    result.rank = of;
    const int64_t chunks = range.buffer == "input"    ? s.chunks
                           : range.buffer == "output" ? s.out_chunks
                                                      : s.scratch;
    const auto begin = value(range.begin, rank),
               end = range.end ? value(*range.end, rank)
                     : begin   ? std::optional(*begin + (*begin < INT64_MAX))
                               : begin;
    if (!begin || !end || *begin < 0 || *end > chunks || *begin >= *end) {
      const std::string which = !begin || !end ? "chunks without a number"
                                : range.end ? fmt::format("{}[{}:{}]", range.buffer, *begin, *end)
                                            : fmt::format("{}[{}]", range.buffer, *begin);
      d_.error(range.loc,
               fmt::format("rank {} names {}, but {} has {} chunk{}{}", rank, which, range.buffer,
                           chunks, chunks == 1 ? "" : "s", chunks > 0 ? ", from 0 on" : ""));
    }
    if (d_.errors() > before) return std::nullopt;
    named_ += *end - *begin;
    if (named_ > kMostChunkSteps * 4) {
      if (!too_many_)
        d_.error(range.loc,
                 fmt::format("collective '{}' names more than {} chunks, of all ranks and "
                             "statements together",
                             a_.name, kMostChunkSteps * 4));
      too_many_ = true;
      return std::nullopt;
    }
    for (int64_t i = *begin; i < *end; ++i)
      result.cells.push_back(range.buffer == "input"    ? s.input_cell(result.rank, i)
                             : range.buffer == "output" ? s.output_cell(result.rank, i)
                                                        : s.scratch_cell(i));
    return result;
  }

  bool move(const ChunkOp& op, int rank) {
    const ChunkAction like =
        action(op, rank, op.kind == "reduce" ? ChunkAction::Kind::Reduce : ChunkAction::Kind::Copy);
    std::vector<Cells> from, to;
    for (const auto& [ranges, list] : {std::pair(&op.from, &from), std::pair(&op.to, &to)})
      for (const ChunkRange& range : *ranges) {
        if (!add_cells(range, rank, *list)) return !too_many_;  // reported
      }
    if (to.empty()) return true;  // there are no other ranks
    if (from.empty() || (from.size() > 1 && op.kind != "reduce")) {
      d_.error(op.loc, fmt::format("'{}' reads chunks of {} ranks on rank {}, not of one", op.kind,
                                   from.size(), rank));
      return true;
    }
    const size_t pieces = from[0].cells.size();
    for (const auto* list : {&from, &to})
      for (const Cells& cells : *list)
        if (cells.cells.size() != pieces) {
          d_.error(op.loc, fmt::format("'{}' has {} and {} chunks on rank {}: all its ranges must "
                                       "have equally many",
                                       op.kind, pieces, cells.cells.size(), rank));
          return true;
        }
    if (pieces > 1 && overlaps(op, rank, from, to)) return true;
    for (size_t k = 0; k < pieces; ++k) {
      if (!count(op)) return false;
      ChunkAction x = like;
      x.packets = op.packets;
      for (const Cells& c : from) x.from.push_back({c.rank, c.cells[k]});
      for (const Cells& c : to) x.to.push_back({c.rank, c.cells[k]});
      p_.actions.push_back(std::move(x));
    }
    return true;
  }

  // Whether one piece reads a chunk that another piece writes: then their order would count.
  bool overlaps(const ChunkOp& op, int rank, const std::vector<Cells>& from,
                const std::vector<Cells>& to) {
    std::map<std::pair<int, int64_t>, size_t> written;  // by rank and cell: the piece
    for (const Cells& c : to)
      for (size_t k = 0; k < c.cells.size(); ++k) written.try_emplace({c.rank, c.cells[k]}, k);
    for (const Cells& c : from)
      for (size_t k = 0; k < c.cells.size(); ++k)
        if (const auto found = written.find({c.rank, c.cells[k]});
            found != written.end() && found->second != k) {
          d_.error(op.loc,
                   fmt::format("on rank {} '{}' writes {} as one of its chunks and reads it as "
                               "another: write a statement for each",
                               rank, op.kind, p_.shape.name(c.rank, c.cells[k])));
          return true;
        }
    return false;
  }

  bool synchronise(const ChunkOp& op, int rank) {
    using enum ChunkAction::Kind;
    if (!count(op)) return false;
    ChunkAction x = action(op, rank,
                           op.kind == "signal"    ? Signal
                           : op.kind == "wait"    ? Wait
                           : op.kind == "acquire" ? Acquire
                           : op.kind == "release" ? Release
                                                  : Barrier);
    x.relaxed = op.relaxed;
    if (op.tag) x.tag = number(*op.tag, rank, op.loc, "'tag'", INT64_MIN, INT64_MAX);
    if (op.semaphore)
      x.semaphore = number(*op.semaphore, rank, op.loc, "'semaphore'", 0, kMostChunks);
    if (op.blocks)
      for (const Expr& e : *op.blocks)
        x.blocks.push_back(number(e, rank, op.loc, "an entry of 'blocks'", 0, kMostChunks));
    std::sort(x.blocks.begin(), x.blocks.end());
    if (std::adjacent_find(x.blocks.begin(), x.blocks.end()) != x.blocks.end())
      d_.error(op.loc, fmt::format("'blocks' names a block twice on rank {}", rank));
    if (!x.blocks.empty() && op.block &&
        !std::binary_search(x.blocks.begin(), x.blocks.end(), x.block))
      d_.error(op.loc,
               fmt::format("block {} isn't one of those that meet at the barrier", x.block));
    if (!op.peer) {
      p_.actions.push_back(std::move(x));
      return true;
    }
    const char* what = op.kind == "signal" ? "'to'" : "'from'";
    for (const int peer : ranks_of(*op.peer, rank, op.loc, what)) {
      if (peer == rank)
        d_.error(op.loc, fmt::format("rank {} would {} itself; blocks of a rank have semaphores "
                                     "and barriers",
                                     rank, op.kind == "signal" ? "signal" : "wait for"));
      if (!count(op)) return false;
      x.peer = peer;
      p_.actions.push_back(x);
    }
    return true;
  }

  const ir::Graph& graph_;
  const ir::Op& op_;
  const ir::UserAlgorithm& a_;
  ir::Diagnostics& d_;
  ChunkProgram p_;
  int64_t named_ = 0;  // how many chunks so far
  bool too_many_ = false;
};

}  // namespace

std::optional<ChunkProgram> chunk_program(const ir::Graph& graph, const ir::Op& op,
                                          const ir::UserAlgorithm& algorithm,
                                          ir::Diagnostics& diagnostics) {
  return Reader(graph, op, algorithm, diagnostics).run();
}

}  // namespace maco::ops
