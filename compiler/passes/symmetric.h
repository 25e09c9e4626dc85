// The symmetric memory that collectives need.
#pragma once

#include <cstdint>

#include "compiler/passes/passes.h"

namespace maco::passes {

/// Gives each slot of a Program its place in symmetric memory, and each wire a place behind it.
/// Returns the bytes of symmetric memory. (plan_memory.cpp)
int64_t place_slots(ir::Program& program);
/// Places wires behind `from` bytes of symmetric memory. (plan_memory.cpp)
void place_wires(ir::Program& program, int64_t from);
/// The bytes of symmetric memory that one op of a graph needs with its algorithm. (tile.cpp)
int64_t symmetric_bytes(const ir::Graph& graph, ir::OpId op, PassContext& context);

}  // namespace maco::passes
