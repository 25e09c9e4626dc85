// How a user's algorithm goes wrong, as text, for maco-run --replay.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "compiler/ops/collectives/chunk_flow.h"

namespace maco::ops {

struct ChunkWitness {
  std::string op;  // the graph's op that uses the algorithm
  ChunkFault fault;
};

/// The text of a witness. `//` begins a comment, which says what a statement is.
///   witness collective NAME of op OP: CLAIM   race, unseen, empty, late, deadlock or result
///   about AT    the statements in question; for a deadlock those that wait
///   run AT      for each statement of the run, in order
/// AT is rank N block N step N: the statement of that number, from 0, among those of the block. In
/// an algorithm without blocks and synchronisation each rank has block 0.
std::string print(const ir::Graph& graph, const ir::Op& op, const ir::UserAlgorithm& algorithm,
                  const ChunkFault& fault);

bool is_chunk_witness(std::string_view text);
/// Reports what is wrong, and then returns nothing.
std::optional<ChunkWitness> parse_chunk_witness(int32_t file, ir::Diagnostics& diagnostics);

std::string_view name(ChunkFault::Claim claim);

/// The outcome of following a witness.
struct ChunkReplay {
  bool confirmed = false;
  std::string error;  // why the witness couldn't be followed
  std::string story;  // lines
};
/// Executes the statements of the run one by one, each only when it can be done, on memory that
/// holds symbols; uses no clocks. Then says whether the witness's claim is true.
ChunkReplay replay(const ir::Graph& graph, const ChunkWitness& witness,
                   ir::Diagnostics& diagnostics);
/// Runs an algorithm in an order that the seed chooses among those that its synchronisation allows.
/// Confirmed: it ends in a deadlock or with a wrong result. For tests of chunk_flow, which has to
/// refuse whatever can go wrong.
ChunkReplay run_at_random(const ir::Graph& graph, const ir::Op& op,
                          const ir::UserAlgorithm& algorithm, uint64_t seed);

}  // namespace maco::ops
