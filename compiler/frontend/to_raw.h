// A graph as the tree of its JSON document: what both printers print.
#pragma once

#include "compiler/frontend/raw.h"
#include "ir/graph.h"

namespace maco::frontend {

/// Keys in the order of graph-format.md's example, those with default values left out. Strings that
/// the DSL writes in quotes have `text_column_shift` 1, names, words and expressions 0. Places are
/// empty.
/// Of a graph with many tensors and ops the tree takes much memory: whoever goes through these one
/// by one leaves them out.
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
