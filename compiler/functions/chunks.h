// chunks (runtime/device/ops/chunks.cuh): the tiles of a user's algorithm. A task reduces a tile
// from several places, or takes it from one, to several places; a table says which.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace maco::functions {

/// A place of a tile: in block `rank` of x (for reads) or of y (for writes), or in cell `cell` of a
/// rank's slots. A task reads only its own rank's slots; that tile came from `rank`.
struct ChunkPlace {
  bool slot = false;
  int64_t rank = 0;
  int64_t cell = 0;
  friend bool operator==(const ChunkPlace&, const ChunkPlace&) = default;
};
/// What a task does with tile `tile` of a block.
struct ChunkMove {
  int64_t tile = 0;
  bool whole = true;  // nothing is left to add: round to y's dtype, divide an average
  std::vector<ChunkPlace> from, to;
  friend bool operator==(const ChunkMove&, const ChunkMove&) = default;
};
/// What all calls of one use of an algorithm have in common. Calls differ in their transfers only.
struct Chunks {
  int64_t world = 1;
  int64_t cols = 1, BR = 1, BC = 1, across = 1, stride = 1;
  ir::ValueRef rows;                        // of a block
  bool x_blocks = false, y_blocks = false;  // a block for each rank
  bool slots = false;                       // there are some
  bool packets = false;
  ir::Reduction reduce = ir::Reduction::Sum;
  ir::DType x{}, y{}, part{};    // part: what is in slots
  std::vector<ChunkMove> moves;  // by task
};

/// Whether `function` is chunks.
bool is_chunks(std::string_view function);
std::vector<ir::Param> params_of(const Chunks& chunks);
/// The call's parameters as Chunks; nothing if the call is of another function or has other
/// parameters.
std::optional<Chunks> chunks_of(const ir::Call& call);
/// The regions of task `task` of a call on these operands (x, y, slots), which runs on `rank` only.
std::vector<ir::Access> accesses_of(const ir::Program& program, const Chunks& chunks,
                                    const std::vector<ir::BufferId>& operands, int rank,
                                    size_t task);
ir::Transfer transfer_of(const Chunks& chunks, const ChunkMove& move);

}  // namespace maco::functions
