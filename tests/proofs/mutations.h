// Faults that a pass, a tile rule or a writer of Programs may make, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/program.h"

namespace maco::proofs {

enum class Kind : uint8_t {
  DropWait,
  DropSignal,  // with or without the count that it leaves
  DropBoth,    // a wait, and all signals for which nobody else waits
  RelaxWait,
  RelaxSignal,
  NarrowScope,
  SwapTasks,  // of one stream
  LowerCount,
  RaiseCount,
  MoveTask,      // to another stream of its role: to its end, or to a place
  ShrinkBuffer,  // rows, the arena or symmetric memory
  AliasBuffers,  // addresses
  SkipChunk,  // a task of a collective is left out, on all ranks or one, with or without what waits
              // for it
  DoubleChunk,    // it does another tile's work
  MisplaceChunk,  // it sends to another place: its regions, its peer
  ReuseEarly,     // a copy of a slot less, a lag more
  Promise,        // what the collective has to deliver
  Load,           // what reaches a task through pages: ring, pages, bytes, operand, when
};
inline constexpr int kKinds = 18;
const char* name(Kind kind);

struct Mutation {
  std::string what;
  std::function<void(ir::Program&)> apply;
  bool touches_same = true;  // buffers, accesses and the list of tasks are as before
};

/// All mutations of one kind, in an order that depends on the Program alone.
std::vector<Mutation> mutations(const ir::Program& program, Kind kind);

}  // namespace maco::proofs
