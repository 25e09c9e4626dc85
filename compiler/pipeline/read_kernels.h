// The pass that reads users' CUDA kernels. It is here, since compiler/passes links no frontend.
#pragma once

#include "compiler/passes/passes.h"

namespace maco::passes {

/// Reads the kernels of ops `cuda` that have none yet, for the machine's target.
bool read_kernels(ir::Graph& graph, PassContext& context);

}  // namespace maco::passes
