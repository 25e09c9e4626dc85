// What the statements of a plan's ranks must be together.
#pragma once

#include <optional>
#include <vector>

#include "compiler/frontend/mscclpp_ranks.h"

namespace maco::frontend::mscclpp {

/// Cuts chunks finer, so that each slice of a group of thread blocks is a number of whole chunks.
void refine(std::vector<Gpu>& gpus, Values& values, ChunkProgram& program);

/// What is read as packets was written as packets, and the other way round: else the plan would
/// wait for ever, or compute with flags.
void check_packets(const std::vector<Gpu>& gpus, Values& values, const ChunkProgram& program);

/// Outside of loops, whose rounds depend on sizes, there is a signal for each wait.
void check_signals(Values& values, const ChunkProgram& program);

/// The rank whose input reaches everybody: the only one with input that is read, but never written.
/// If there is none it is reported at `loc`.
std::optional<int32_t> find_root(const std::vector<Gpu>& gpus, Values& values,
                                 const ChunkProgram& program, ir::Loc loc);

}  // namespace maco::frontend::mscclpp
