// The text of ir::Graph: canonical DSL. compiler/frontend parses it, and has the spelling in JSON.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "ir/graph.h"

namespace maco::ir {

/// The canonical text: parsing it gives an equal graph, whose text is the same.
std::string print(const Graph& graph);

/// The text and where ops stand in it: the line, from 1, by the names that the text says there,
/// which are that of the op, if it was given one, and those of its results.
struct GraphText {
  std::string text;
  std::map<std::string, size_t, std::less<>> lines;
};
/// Prints the graph, and says where its ops stand.
GraphText print_with_lines(const Graph& graph);

}  // namespace maco::ir
