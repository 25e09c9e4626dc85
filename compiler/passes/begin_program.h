// The part of a Program that exists before its first task.
#pragma once

#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

/// Makes `program` a Program with the graph's tensors, roles (if they are ranges) and no tasks.
/// Returns the buffer of each tensor.
std::vector<ir::BufferId> begin_program(const ir::Graph& graph, ir::Program& program,
                                        const PassContext& context);

}  // namespace maco::passes
