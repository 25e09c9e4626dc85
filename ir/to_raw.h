// A graph as the tree of its JSON document, which both printers print.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ir/raw.h"

namespace maco::ir {

/// Makes the tree. Keys come in the order of docs/language.md; default values are left
/// out. Strings that the DSL writes in quotes have `text_column_shift` 1; names, words and
/// expressions have 0. Places are empty. For a graph with many tensors and ops the tree takes much
/// memory, so that code that handles these one by one leaves them out (NoTensorsNorOps).
enum class Parts : uint8_t { All, NoTensorsNorOps };
Raw to_raw(const Graph& graph, Parts parts = Parts::All);
Raw to_raw(const Tensor& tensor);
Raw to_raw(const Graph& graph, const Op& op);

/// "scratch[2:4] @ (rank + 1)"
std::string print_chunks(const ChunkRange& range);

/// The shortest text that reads back as `number`, with a fraction or an exponent.
std::string print_float(double number);
/// `text` in quotes, escaped as JSON does.
std::string print_quoted(const std::string& text);

}  // namespace maco::ir
