// What the text of a graph leaves to the reader, and what a program that builds one may too.
#pragma once

#include "ir/graph.h"

namespace maco::graph {

/// Gives ops without a name the one that the text of the graph would give them: that of their first
/// output, or "<kind>_<n>". A name that isn't that one counts as given by the user. Texts are read
/// back with the same names.
void name_ops(ir::Graph& graph);

/// Puts the tensors into the order in which any text of the graph would have them: what the caller
/// binds in the order of declaration, then results in the order of the ops that make them.
void order_tensors(ir::Graph& graph);

}  // namespace maco::graph
