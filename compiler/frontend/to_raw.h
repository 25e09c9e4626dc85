// A graph as the tree of its JSON document, which both printers print.
#pragma once

#include "compiler/frontend/raw.h"
#include "ir/graph.h"

namespace maco::frontend {

/// Makes the tree. Keys come in the order of graph-format.md's example; default values are left
/// out. Strings that the DSL writes in quotes have `text_column_shift` 1; names, words and
/// expressions have 0. Places are empty. For a graph with many tensors and ops the tree takes much
/// memory, so that code that handles these one by one leaves them out (NoTensorsNorOps).
enum class Parts : uint8_t { All, NoTensorsNorOps };
Raw to_raw(const ir::Graph& graph, Parts parts = Parts::All);
Raw to_raw(const ir::Tensor& tensor);
Raw to_raw(const ir::Graph& graph, const ir::Op& op);

/// "scratch[2:4] @ (rank + 1)"
std::string print_chunks(const ir::ChunkRange& range);

/// The shortest text that reads back as `number`, with a fraction or an exponent.
std::string print_float(double number);
/// `text` in quotes, escaped as JSON does.
std::string print_quoted(const std::string& text);

}  // namespace maco::frontend
