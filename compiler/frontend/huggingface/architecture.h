// An .arch file (docs/models.md): names computed from config.json, a graph in the DSL with
// placeholders, and the sources of its params.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/huggingface/expression.h"
#include "ir/diagnostics.h"

namespace maco::frontend::huggingface {

/// from NAME[begin:end] rows CUT columns CUT transpose plus N once
struct Origin {
  std::string name;                                  // on disk, with `{i}` of repeats replaced
  std::optional<std::pair<int64_t, int64_t>> range;  // of rows, after `transpose`
  Value rows, columns;                               // a cut (cuts.h) or null
  bool transpose = false, once = false;
  double plus = 0;
  ir::Loc loc;
};

/// A param of the graph, in one iteration of the repeats around it.
struct ParamOrigin {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<Origin> origins;
  Value values;  // a list of numbers, or null
  ir::Loc loc;
};

/// An .arch file expanded for one kind of graph.
struct Expanded {
  std::vector<std::string> graph;  // lines of the DSL between the braces of `graph { }`
  std::vector<ParamOrigin> params;
  std::vector<std::string> ignored;  // patterns of names on disk, with `*`
  Scope names;                       // of the file's outermost `let`
};

/// The names behind the word `architectures`, in the text's first statement.
std::vector<std::string> architectures_of(std::string_view text);

/// Expands a file. `base`: config, world, kind and the functions; it outlives the result. Returns
/// nothing, after reporting, if something is wrong or refused.
std::optional<Expanded> expand(int32_t file, const Scope& base, ir::Diagnostics& diagnostics);

}  // namespace maco::frontend::huggingface
