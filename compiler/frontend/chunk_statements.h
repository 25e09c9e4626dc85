// What each rank of a collective does, and the text that says it once for all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/diagnostics.h"

namespace maco::frontend {

enum class ChunkBuffer : uint8_t { Input, Output, Scratch };

struct ChunkRef {
  ChunkBuffer buffer = ChunkBuffer::Input;
  int32_t rank = 0;  // the chunk's rank
  int64_t begin = 0, count = 1;
  bool packets = false;  // whether the data written or read travels as packets

  friend bool operator==(const ChunkRef&, const ChunkRef&) = default;
};

/// A statement of one rank and one thread block.
struct ChunkStatement {
  enum class Kind : uint8_t { Copy, Put, Get, Reduce, Signal, Wait, Acquire, Release, Barrier };
  Kind kind = Kind::Copy;
  std::vector<ChunkRef> to, from;
  int32_t peer = 0;    // signal and wait
  int64_t number = 0;  // the tag of signal and wait; the semaphore of acquire and release
  size_t blocks = 0;   // barrier: index into ChunkProgram::block_lists
  bool packets = false, relaxed = false;
  int64_t unit = 0;               // bytes; 0: not in a loop
  int64_t slice = 0, slices = 1;  // the slice of its chunks that it handles, see refine()
  ir::Loc loc;
};

struct ChunkProgram {
  std::string name, of;
  int32_t world = 1;
  int64_t chunks = 1, scratch = 0;
  bool in_place = false;
  std::vector<int64_t> semaphores;
  std::vector<std::vector<std::vector<ChunkStatement>>> ranks;  // by rank and thread block
  std::vector<std::vector<int64_t>> block_lists;
};

/// Prints the definition of the collective. Statements that ranks have in common are written once,
/// with formulas over `rank` and `world` that were checked on each rank.
std::string print_chunk_program(const ChunkProgram& program);

}  // namespace maco::frontend
