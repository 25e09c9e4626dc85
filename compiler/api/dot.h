// Pictures for Graphviz.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ir/program.h"

namespace maco::api {

/// The ops of a graph, with the types of the tensors between them.
std::string dot_of_graph(const ir::Graph& graph);
/// The tasks of a Program, clustered by role and SM: solid edges from signals to waits (between
/// ranks bold), dashed ones along each SM's stream.
std::string dot_of_tasks(const ir::Program& program);

}  // namespace maco::api
