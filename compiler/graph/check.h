// Everything that can be wrong with a graph before its shapes are inferred.
#pragma once

#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::graph {

inline constexpr int64_t kMaxOps = 65'536;

struct CheckOptions {
  bool internal_ops = false;  // accept ops and attributes that only passes make
};

/// Reports all that it finds: names that no text could have or that two things share; ranges and
/// shapes that are empty; ids that lead nowhere; ops of unknown kinds, with wrong operands or
/// attributes; tensors that are read before they are written, or written twice; constraints on what
/// isn't there, or that form a cycle; expressions without a value; roles that no SM can have. What
/// passes is safe to infer, print and compile. False if an error was reported.
bool check_graph(const ir::Graph& graph, const CheckOptions& options, ir::Diagnostics& diagnostics);

/// check_graph, then the shapes (ops::infer) and whether each op has SMs that run it, which these
/// decide, for a graph that no frontend made: its ops get the names and its tensors the order that
/// they would have if its text were read (complete.h). False if an error was reported.
bool check_and_infer(ir::Graph& graph, const CheckOptions& options, ir::Diagnostics& diagnostics);

}  // namespace maco::graph
