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
  std::string word;  // the attribute `algorithm`; "" if the op has only one
  /// Makes the op's tasks, and declares what they deliver together (TileContext::promise).
  void (*tile)(TileContext&) = nullptr;
  /// The route of a tensor of `bytes` on each of `world` ranks; `auto` compares the routes' costs.
  /// Null: only users choose the algorithm, by name.
  cost::Route (*route)(double bytes, int64_t world) = nullptr;
  /// As OpDef::choose. Null: the tile rule has only one cut.
  Cut (*choose)(const TileContext&) = nullptr;
  /// Whether the op's result has the reference's bits: sums in rank order, rounded once. `auto`
  /// takes the algorithm for no other op. Null: always.
  bool (*exact)(const ir::Graph&, const ir::Op&) = nullptr;
};

/// The algorithms of one op in the order of the docs, then the registered ones. Of equally fast
/// ones `auto` takes the first.
std::vector<Algorithm> algorithms_of(std::string_view op);
/// The words of these algorithms, without the one that has no word.
std::vector<std::string> algorithm_words(std::string_view op);
/// Whether `auto` has algorithms to choose from.
bool has_algorithms(std::string_view op);
/// Whether the op is handed over to a library, by its algorithm or, where that is open, by the
/// graph's backend.
bool is_handed_over(const ir::Graph& graph, const ir::Op& op);
/// Whether `algorithm` of ops of this kind may name a collective that the graph defines.
bool takes_user_algorithms(std::string_view op);
/// Why a user's collective can't have this name, or "".
std::string taken_algorithm_word(std::string_view word);

/// Tiles an op by the algorithm that it names, and chooses its cut.
void tile_by_algorithm(TileContext& context);
Cut choose_by_algorithm(const TileContext& context);

/// Makes an algorithm known to the whole process, from any thread, before the first graph that
/// names it is parsed. If it has a route, `auto` may choose it. Returns "", or why it can't be
/// registered: the op has no choice of algorithms, its word is taken, or it has no tile rule.
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
// nccl.cpp: collectives that are handed over to a library outside of the kernel.
Algorithm allreduce_nccl();
Algorithm allgather_nccl();
Algorithm reduce_scatter_nccl();
Algorithm alltoall_nccl();
Algorithm broadcast_nccl();
Algorithm ring_shift_nccl();
Algorithm barrier_nccl();

}  // namespace maco::ops
