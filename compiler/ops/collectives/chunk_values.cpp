#include "compiler/ops/collectives/chunk_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace maco::ops {

namespace {

std::string ranks_text(uint64_t ranks) {
  std::string text;
  for (int r = 0; r < 64; ++r)
    if ((ranks >> r) & 1) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  return (std::popcount(ranks) == 1 ? "rank " : "ranks ") + text;
}

}  // namespace

std::string place_text(const ChunkShape& shape, ChunkCell c) {
  return fmt::format("{} of rank {}", shape.name(c.rank, c.cell), c.rank);
}

ChunkValues::ChunkValues(const ChunkShape& shape, bool same_bits, ir::Diagnostics& diagnostics)
    : shape_(shape), same_bits_(same_bits), d_(diagnostics) {
  flow_.chunks = shape.chunks;
  flow_.parts = shape.parts;
  flow_.world = static_cast<uint32_t>(shape.world);
  memory_.assign(static_cast<size_t>(shape.memory() * shape.world), kNoChunkValue);
  for (int r = 0; r < shape.world; ++r)
    for (int64_t c = 0; c < shape.chunks; ++c) {
      memory_[place({r, shape.input_cell(r, c)})] = add({c, uint64_t{1} << r}, r);
      trees_.push_back(static_cast<uint64_t>(r));
    }
}

std::optional<uint32_t> ChunkValues::make(const ChunkAction& x,
                                          const std::vector<uint32_t>& found) {
  if (x.kind == ChunkAction::Kind::Reduce && !shape_.reduces()) {
    d_.error(x.op->loc, fmt::format("'{}' reduces nothing", shape_.op));
    return std::nullopt;
  }
  if (found.size() == 1) return found[0];
  ChunkValue sum = value(found[0]);
  for (size_t i = 1; i < found.size(); ++i) {
    const ChunkValue& v = value(found[i]);
    if (v.chunk != sum.chunk) {
      d_.error(x.op->loc,
               fmt::format("rank {} reduces chunk {} of {} with chunk {} of {}", x.rank, sum.chunk,
                           ranks_text(sum.ranks), v.chunk, ranks_text(v.ranks)));
      return std::nullopt;
    }
    if (sum.ranks & v.ranks) {
      d_.error(x.op->loc, fmt::format("rank {} counts chunk {} of {} twice", x.rank, v.chunk,
                                      ranks_text(sum.ranks & v.ranks)));
      return std::nullopt;
    }
    sum.ranks |= v.ranks;
  }
  std::vector<uint32_t> from = found;
  std::stable_sort(from.begin(), from.end(), [&](uint32_t a, uint32_t b) {
    return std::countr_zero(value(a).ranks) < std::countr_zero(value(b).ranks);
  });
  for (size_t i = 0; i < x.from.size(); ++i) bring(found[i], x.from[i].rank, x.rank);
  const uint32_t made = add(sum, x.rank);
  uint64_t tree = 0x9e3779b97f4a7c15u;
  for (uint32_t v : from) tree = (tree ^ trees_[v]) * 0x100000001b3u + 0x632be59bd9b4e019u;
  trees_.push_back(tree);
  for (uint32_t v : from)
    if (!flow_.is_input(v) && maker_[v] == x.rank) step(x.rank, v).keep = true;
  step(x.rank, made).from = std::move(from);
  return made;
}

void ChunkValues::write(const ChunkAction& x, const std::vector<uint32_t>& found, uint32_t made) {
  // A value that isn't made here comes from where it was read.
  const int source = found.size() > 1 ? x.rank : x.from[0].rank;
  for (const ChunkCell& to : x.to) {
    bring(made, source, to.rank);
    set(to, made);
  }
}

bool ChunkValues::finish(const ir::UserAlgorithm& algorithm) {
  for (int r = 0; r < shape_.world; ++r)
    for (int64_t c = 0; c < shape_.out_chunks; ++c)
      if (!finish(algorithm, r, c)) return false;
  return true;
}

uint32_t ChunkValues::add(ChunkValue v, int rank) {
  flow_.values.push_back(v);
  has_.push_back(uint64_t{1} << rank);
  maker_.push_back(rank);
  return static_cast<uint32_t>(flow_.values.size() - 1);
}

ChunkStep& ChunkValues::step(int rank, uint32_t v) {
  const auto [it, fresh] =
      steps_.try_emplace((uint64_t{v} << 8) + static_cast<uint64_t>(rank), flow_.steps.size());
  if (fresh) {
    flow_.steps.emplace_back();
    flow_.steps.back().rank = rank;
    flow_.steps.back().value = v;
  }
  return flow_.steps[it->second];
}

void ChunkValues::bring(uint32_t v, int from, int to) {
  if ((has_[v] >> to) & 1) return;
  step(from, v).to.push_back(to);
  has_[v] |= uint64_t{1} << to;
}

bool ChunkValues::finish(const ir::UserAlgorithm& algorithm, int rank, int64_t chunk) {
  const ChunkValue wanted{shape_.wanted_chunk(rank, chunk), shape_.wanted_ranks(chunk)};
  const uint32_t v = at({rank, shape_.output_cell(rank, chunk)});
  const auto holds = [&](const ChunkValue& x) {
    return shape_.reduces() && std::popcount(x.ranks) > 1
               ? fmt::format("the reduction of chunk {} over {}", x.chunk, ranks_text(x.ranks))
               : fmt::format("chunk {} of {}", x.chunk, ranks_text(x.ranks));
  };
  if (v == kNoChunkValue || value(v) != wanted) {
    complete_ = false;
    d_.error(algorithm.loc,
             fmt::format("collective '{}' leaves {} in output[{}] of rank {}, where '{}' needs {}",
                         algorithm.name, v == kNoChunkValue ? "nothing" : holds(value(v)), chunk,
                         rank, shape_.op, holds(wanted)));
    return false;
  }
  if (same_bits_ && shape_.op == "allreduce") {
    if (rank == 0) first_.push_back(v);
    const uint32_t other = first_[static_cast<size_t>(chunk)];
    if (trees_[other] != trees_[v]) {
      d_.error(
          algorithm.loc,
          fmt::format("collective '{}' reduces chunk {} in another order on rank {} than on rank "
                      "0: they would not hold the same bits",
                      algorithm.name, chunk, rank));
      return false;
    }
  }
  step(rank, v).out = chunk;
  return true;
}

}  // namespace maco::ops
