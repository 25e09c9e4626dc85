// What a user's algorithm does: which chunk of which rank's input, or which reduction of several,
// arrives where. Found by running its statements over symbols. The run also checks everything that
// can be wrong with the statements.
//
// Without `block` and synchronisation a statement reads what earlier statements wrote, on all ranks
// together: each rank reads before any rank writes. With them only the statements of one thread
// block follow each other, and everything else is ordered only as the author says. That has to be
// enough: no two conflicting accesses may be unordered, and no wait may lack its signal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::ops {

/// The most chunks of a buffer, and the most statements of all ranks together.
inline constexpr int64_t kMostChunks = int64_t{1} << 16, kMostChunkSteps = int64_t{1} << 20;

/// What a chunk holds: chunk `chunk` of the input of a rank, or its reduction over `ranks`.
struct ChunkValue {
  int64_t chunk = 0;
  uint64_t ranks = 0;  // one bit for each rank
  friend bool operator==(const ChunkValue&, const ChunkValue&) = default;
};

/// What rank `rank` does with a value. It makes the value from others that it has, or it has the
/// value from its input or from a peer; and it passes the value on. A rank has at most one step for
/// a value.
struct ChunkStep {
  int rank = 0;
  uint32_t value = 0;
  std::vector<uint32_t> from;  // the reduced values, by their first rank; empty: no reduction
  std::vector<int> to;         // ranks to which it is sent
  bool keep = false;           // a later step of the rank reads what this one made
  std::optional<int64_t> out;  // the chunk of the output that gets it
};

struct ChunkFlow {
  int64_t chunks = 1;  // of the input
  int64_t parts = 1;   // chunks of a block; without blocks the tensor is one
  /// The first values are those of inputs: chunk c of rank r has number r * chunks + c.
  std::vector<ChunkValue> values;
  /// Each step comes after the steps that give what it needs.
  std::vector<ChunkStep> steps;
  bool packets = false;         // the author asks for packets
  std::optional<int64_t> unit;  // bytes of a piece: the least that a statement asks for
  bool is_input(uint32_t value) const { return value < static_cast<uint32_t>(chunks) * world; }
  uint32_t world = 1;
  int rank_of_input(uint32_t value) const { return static_cast<int>(value / chunks); }
};

/// A fault, with a run of the author's statements that shows it, for `maco-run --replay`.
struct ChunkFault {
  enum class Claim : uint8_t {
    Race,      // after the run both statements can be next, and touch the same chunk
    Unseen,    // the second can be next, but nothing makes the first's write visible to it
    Empty,     // after the run the statement can be next, and reads what nothing has written
    Late,      // after the run a rank has ended, and the statement still writes its output
    Deadlock,  // after the run no statement can be next, and some have not been done
    Result,    // after the run, which is a whole one, a chunk of the output is wrong
  };
  struct At {
    int rank = 0;
    int64_t block = 0;
    int64_t step = 0;  // in the block, from 0
    friend bool operator==(const At&, const At&) = default;
  };
  Claim claim = Claim::Race;
  std::vector<At> about, run;
};

/// Runs the algorithm. If it is wrong, reports that at its place in the algorithm and returns
/// nothing; if `fault` isn't null, stores there a run that shows the fault, if there is one.
std::optional<ChunkFlow> chunk_flow(const ir::Graph& graph, const ir::Op& op,
                                    const ir::UserAlgorithm& algorithm,
                                    ir::Diagnostics& diagnostics,
                                    std::optional<ChunkFault>* fault = nullptr);

}  // namespace maco::ops
