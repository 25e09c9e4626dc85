// An .arch file (docs/models.md): names computed from config.json, a graph in the DSL with
// placeholders, and where its params come from.
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
  std::string name;                                  // on disk; `{i}` of repeats replaced
  std::optional<std::pair<int64_t, int64_t>> range;  // of rows, after `transpose`
  Value rows, columns;                               // a cut (cuts.h) or null
  bool transpose = false, once = false;
  double plus = 0;
  ir::Loc loc;
};

/// A param of the graph, of one iteration of the repeats around it.
struct ParamOrigin {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<Origin> origins;
  Value values;  // a list of numbers, or null
  ir::Loc loc;
};

/// What an .arch file comes to for one kind of graph.
struct Expanded {
  std::vector<std::string> graph;  // lines of the DSL between the braces of `graph { }`
  std::vector<ParamOrigin> params;
  std::vector<std::string> ignored;  // patterns of names on disk, with `*`
  Scope names;                       // those of the file's outermost `let`
};

/// The names that follow `architectures` in the text, of its first statement.
std::vector<std::string> architectures_of(std::string_view text);

/// `base`: config, world, kind and the functions; it outlives the result. Nothing, having reported,
/// if something is wrong or refused.
std::optional<Expanded> expand(int32_t file, const Scope& base, ir::Diagnostics& diagnostics);

}  // namespace maco::frontend::huggingface
