// The operations of a plan's thread blocks.
#pragma once

#include <string>
#include <vector>

#include "compiler/frontend/mscclpp_ranks.h"

namespace maco::frontend::mscclpp {

/// Reads the operations of all ranks as statements of `program`, which still have their slices (see
/// refine in mscclpp_checks.h). Returns how they reduce: "sum", "min" or "max"; "" if none does.
std::string read_ops(const std::vector<Gpu>& gpus, Values& values, ChunkProgram& program);

}  // namespace maco::frontend::mscclpp
