// What a user's algorithm has in memory while its statements run, and the steps that bring it
// there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/ops/collectives/chunk_flow.h"
#include "compiler/ops/collectives/chunk_program.h"

namespace maco::ops {

/// The number of no value: what a chunk holds that nothing has written.
inline constexpr uint32_t kNoChunkValue = ~0u;

/// A chunk's name for messages.
std::string place_text(const ChunkShape& shape, ChunkCell c);

/// The values in memory, and the steps that bring them there.
class ChunkValues {
 public:
  ChunkValues(const ChunkShape& shape, bool same_bits, ir::Diagnostics& diagnostics);

  size_t place(ChunkCell c) const { return static_cast<size_t>(c.rank * shape_.memory() + c.cell); }
  uint32_t at(ChunkCell c) const { return memory_[place(c)]; }
  void set(ChunkCell c, uint32_t value) { memory_[place(c)] = value; }

  /// The value that the action makes of `found`, the values in its sources; nothing if the action
  /// is wrong.
  std::optional<uint32_t> make(const ChunkAction& x, const std::vector<uint32_t>& found);

  /// Stores the action's result in its destinations.
  void write(const ChunkAction& x, const std::vector<uint32_t>& found, uint32_t made);

  /// Checks that all ranks have what the collective promises, in the same bits; reports if not.
  bool finish(const ir::UserAlgorithm& algorithm);
  /// After finish() has failed: whether all ranks have the right value, though in different bits.
  bool complete() const { return complete_; }
  ChunkFlow take() { return std::move(flow_); }

 private:
  const ChunkValue& value(uint32_t v) const { return flow_.values[v]; }
  uint32_t add(ChunkValue v, int rank);
  ChunkStep& step(int rank, uint32_t v);
  void bring(uint32_t v, int from, int to);

  bool finish(const ir::UserAlgorithm& algorithm, int rank, int64_t chunk);

  const ChunkShape& shape_;
  bool same_bits_;
  bool complete_ = true;
  ir::Diagnostics& d_;
  ChunkFlow flow_;
  std::vector<uint32_t> memory_;  // by place: a value
  std::vector<uint64_t> has_;     // by value: the ranks that have it
  std::vector<int> maker_;
  std::vector<uint64_t> trees_;  // the order in which the value's parts are reduced
  std::vector<uint32_t> first_;  // by chunk: what rank 0 holds
  std::unordered_map<uint64_t, size_t> steps_;
};

}  // namespace maco::ops
