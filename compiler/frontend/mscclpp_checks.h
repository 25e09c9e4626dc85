// Conditions that the statements of all ranks of a plan must meet together.
#pragma once

#include <optional>
#include <vector>

#include "compiler/frontend/mscclpp_ranks.h"

namespace maco::frontend::mscclpp {

/// Cuts chunks finer, so that each slice of a group of thread blocks is a number of whole chunks.
void refine(std::vector<Gpu>& gpus, Values& values, ChunkProgram& program);

/// Checks that what is read as packets was written as packets, and vice versa: otherwise the plan
/// would wait for ever, or compute with flags.
void check_packets(const std::vector<Gpu>& gpus, Values& values, const ChunkProgram& program);

/// Checks that there is a signal for each wait. Loops are left out, as their rounds depend on
/// sizes.
void check_signals(Values& values, const ChunkProgram& program);

/// The rank whose input reaches all ranks: the only rank whose input is read but never written. If
/// there is none, that is reported at `loc`.
std::optional<int32_t> find_root(const std::vector<Gpu>& gpus, Values& values,
                                 const ChunkProgram& program, ir::Loc loc);

}  // namespace maco::frontend::mscclpp
