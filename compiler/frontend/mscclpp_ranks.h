// What the ranks of a plan have: channels, memory of peers, semaphores.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compiler/frontend/chunk_statements.h"
#include "compiler/frontend/mscclpp_values.h"

namespace maco::frontend::mscclpp {

inline constexpr int64_t kMaxChunks = 1 << 16;  // of a buffer

inline size_t index(int64_t i) { return static_cast<size_t>(i); }

/// A channel to a peer, or a peer's memory. Not sound if it couldn't be read.
struct Link {
  int32_t peer = 0;
  int64_t tag = 0;  // channels: the same number at both ends
  bool sound = true;
};
struct Memory {
  int32_t rank = 0;
  ChunkBuffer buffer = ChunkBuffer::Input;
  bool by_memory = false, by_port = false;
  bool sound = true;
};
/// Ranks whose memory a switch writes and reads at once, the rank itself first.
struct Group {
  ChunkBuffer buffer = ChunkBuffer::Input;
  std::vector<int32_t> ranks;
  bool sound = true;
};

/// What a rank has.
struct Gpu {
  std::array<int64_t, 3> chunks = {0, 0, 0};  // of input, output and scratch
  std::array<std::vector<Link>, 2> channels;  // memory and port
  std::vector<Group> groups;
  std::vector<Memory> remote;
  std::vector<int64_t> semaphores;        // their first values
  std::vector<size_t> semaphore_numbers;  // in the program
  const Raw* raw = nullptr;               // null if it couldn't be read
};

/// Reads the entries of 'gpus', and fills the program's world, scratch and semaphores. Wrong
/// entries are reported and marked. Returns nothing if there are no ranks, or too many.
std::vector<Gpu> read_ranks(const Raw& gpus, Values& values, ChunkProgram& program);

/// Whether both are the same chunks; input and output are one memory if the program is in place.
bool same_memory(const ChunkProgram& program, const std::vector<Gpu>& gpus, ChunkRef a, ChunkRef b);

}  // namespace maco::frontend::mscclpp
