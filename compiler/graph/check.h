// Everything that can be wrong with a graph before its shapes are inferred.
#pragma once

#include "ir/diagnostics.h"
#include "ir/graph.h"

namespace maco::graph {

inline constexpr int64_t kMaxOps = 65'536;

struct CheckOptions {
  bool internal_ops = false;  // accept ops and attributes that only passes make
};

/// Reports all that it finds: names that no text could have or that two things share; empty ranges
/// and shapes; ids that refer to nothing; ops of unknown kinds, with wrong operands or attributes;
/// tensors that are read before they are written, or written twice; constraints that name missing
/// things or form a cycle; expressions without a value; roles that no SM can have. A graph without
/// errors is safe to infer, print and compile. Returns false if an error was reported.
bool check_graph(const ir::Graph& graph, const CheckOptions& options, ir::Diagnostics& diagnostics);

/// For a graph that no frontend made. Does check_graph, then infers shapes (ops::infer), and checks
/// that each op has SMs that run it, which depends on the shapes. Ops get the names and tensors the
/// order that they would have if the graph's text were read (complete.h). Returns false if an error
/// was reported.
bool check_and_infer(ir::Graph& graph, const CheckOptions& options, ir::Diagnostics& diagnostics);

}  // namespace maco::graph
