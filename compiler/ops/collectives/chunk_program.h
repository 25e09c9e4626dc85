// The statements of a user's algorithm as each rank and thread block executes them, with numbers in
// place of expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::ops {

/// How the collective's tensors are cut, and what the collective has to deliver.
struct ChunkShape {
  std::string op;  // "allreduce"
  int world = 1;
  int64_t root = 0;                    // of broadcast
  int64_t chunks = 1, out_chunks = 1;  // of input and output
  int64_t parts = 1;                   // of a block
  int64_t scratch = 0;
  bool in_place = false;
  bool reduces() const { return op == "allreduce" || op == "reduce_scatter"; }
  /// Cells of a rank's memory: input, output (if it isn't the input) and scratch.
  int64_t memory() const;
  int64_t input_cell(int rank, int64_t chunk) const;
  int64_t output_cell(int rank, int64_t chunk) const;
  int64_t scratch_cell(int64_t chunk) const { return memory() - scratch + chunk; }
  bool is_scratch(int64_t cell) const { return cell >= memory() - scratch; }
  /// A chunk's name, such as "output[3]"; where input and output are one, the output's name.
  std::string name(int rank, int64_t cell) const;
  /// The chunk of the input that chunk `chunk` of `rank`'s output is, and the ranks over which it
  /// is reduced.
  int64_t wanted_chunk(int rank, int64_t chunk) const;
  uint64_t wanted_ranks(int64_t chunk) const;
};

/// A chunk of a rank's memory.
struct ChunkCell {
  int rank = 0;
  int64_t cell = 0;
  friend bool operator==(const ChunkCell&, const ChunkCell&) = default;
};

/// One piece of a statement that moves chunks, or a statement that synchronises.
struct ChunkAction {
  enum class Kind : uint8_t { Copy, Reduce, Signal, Wait, Acquire, Release, Barrier };
  Kind kind = Kind::Copy;
  const ir::ChunkOp* op = nullptr;
  int rank = 0;
  int64_t block = 0;
  std::vector<ChunkCell> from, to;  // Copy and Reduce
  bool packets = false;             // whether what it writes to scratch is packets
  int peer = 0;                     // Signal and Wait
  int64_t tag = 0, semaphore = 0;
  bool relaxed = false;
  std::vector<int64_t> blocks;  // Barrier: ascending
  int64_t unit = 0;
};

struct ChunkProgram {
  ChunkShape shape;
  std::vector<int64_t> semaphores;  // first values
  /// In the order of the statements; within a statement by rank, then by piece.
  std::vector<ChunkAction> actions;
  bool ordered = false;  // by its author: it uses blocks or synchronisation
  bool packets = false;
  std::optional<int64_t> unit;
};

/// Makes the program. Reports what is wrong with the algorithm's numbers. `op`: the op that uses
/// it.
std::optional<ChunkProgram> chunk_program(const ir::Graph& graph, const ir::Op& op,
                                          const ir::UserAlgorithm& algorithm,
                                          ir::Diagnostics& diagnostics);

}  // namespace maco::ops
