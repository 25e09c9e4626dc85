// What the text of a graph leaves to its reader, and a program that builds a graph may leave out
// too.
#pragma once

#include "ir/graph.h"

namespace maco::graph {

/// Gives ops without a name the name that they get from the text of the graph: that of their first
/// output, or "<kind>_<n>". Any other name counts as given by the user. Texts are read back with
/// the same names.
void name_ops(ir::Graph& graph);

/// Puts the tensors into the order in which any text of the graph has them: what the caller binds
/// in the order of declaration, then results in the order of the ops that make them.
void order_tensors(ir::Graph& graph);

}  // namespace maco::graph
