// The table of collective algorithms: how each collective of the language can be done.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/cost/model.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

struct Algorithm {
  std::string op;    // "allreduce"
  std::string word;  // of the attribute `algorithm`; "" where there is but one
  /// Makes the op's tasks, and promises what they deliver together (TileContext::promise).
  void (*tile)(TileContext&) = nullptr;
  /// How a tensor of `bytes` on each of `world` ranks travels: `auto` compares what that costs.
  /// Null: only by name.
  cost::Route (*route)(double bytes, int64_t world) = nullptr;
  /// As OpDef::choose. Null: its tile rule cuts in one way only.
  Cut (*choose)(const TileContext&) = nullptr;
  /// Whether an op's result has the bits that the reference means: sums in rank order, rounded
  /// once. `auto` takes it for no other. Null: always.
  bool (*exact)(const ir::Graph&, const ir::Op&) = nullptr;
};

/// Those of one op, in the order of the docs, then the registered ones; `auto` takes the first of
/// those that are equally fast.
std::vector<Algorithm> algorithms_of(std::string_view op);
/// The words of those, without the one that has none.
std::vector<std::string> algorithm_words(std::string_view op);
/// Whether `auto` has some to choose from.
bool has_algorithms(std::string_view op);
/// Whether the op leaves the kernel: by its algorithm, or where that is open the graph's backend.
bool is_handed_over(const ir::Graph& graph, const ir::Op& op);
/// Whether `algorithm` of such an op may name a collective that the graph defines.
bool takes_user_algorithms(std::string_view op);
/// Why a user's collective can't have this name, or "".
std::string taken_algorithm_word(std::string_view word);

/// Tiles an op, and chooses its cut, by the algorithm that it names.
void tile_by_algorithm(TileContext& context);
Cut choose_by_algorithm(const TileContext& context);

/// Makes an algorithm known to the whole process, from any thread, before the first graph that
/// names it is parsed; with a cost, `auto` may choose it. Returns "", or why it can't be had: an op
/// that has but one way, a word that is taken, no tile rule.
[[nodiscard]] std::string register_algorithm(Algorithm algorithm);

// One file each.
Algorithm allreduce_oneshot();
Algorithm allreduce_twoshot();
Algorithm allreduce_ring();
Algorithm allgather_oneshot();
Algorithm allgather_ring();
Algorithm reduce_scatter_oneshot();
Algorithm reduce_scatter_ring();
Algorithm alltoall();
Algorithm broadcast_oneshot();
Algorithm broadcast_twoshot();
Algorithm ring_shift();
Algorithm send();
Algorithm recv();
Algorithm barrier();
// nccl.cpp: handed over to a library outside of the kernel.
Algorithm allreduce_nccl();
Algorithm allgather_nccl();
Algorithm reduce_scatter_nccl();
Algorithm alltoall_nccl();
Algorithm broadcast_nccl();
Algorithm ring_shift_nccl();
Algorithm barrier_nccl();

}  // namespace maco::ops
