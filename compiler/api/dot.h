// Pictures for Graphviz.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ir/program.h"

namespace maco::api {

/// The ops of a graph; edges show the types of the tensors between them.
std::string dot_of_graph(const ir::Graph& graph);
/// The tasks of a Program, clustered by role and SM. Solid edges lead from signals to waits (bold
/// between ranks), dashed edges along each SM's stream.
std::string dot_of_tasks(const ir::Program& program);

}  // namespace maco::api
