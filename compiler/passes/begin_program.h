// What stands in a Program before its first task.
#pragma once

#include <vector>

#include "compiler/passes/passes.h"

namespace maco::passes {

/// Makes `program` one with the graph's tensors, roles (if they are ranges) and no tasks. Returns
/// which buffer each tensor is.
std::vector<ir::BufferId> begin_program(const ir::Graph& graph, ir::Program& program,
                                        const PassContext& context);

}  // namespace maco::passes
