// Texts to graphs and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/raw.h"

namespace maco::frontend {

using ir::Raw;

/// Parses file `file` of `diagnostics` (Diagnostics::add_file); builds, validates and infers the
/// graph. All errors of the file are reported; returns nothing if there was one. `collectives`:
/// documents of parse_collectives, whose collectives ops may name as their algorithm; unused ones
/// are ignored.
std::optional<ir::Graph> parse_json(int32_t file, ir::Diagnostics& diagnostics,
                                    const std::vector<Raw>& collectives = {});
std::optional<ir::Graph> parse_dsl(int32_t file, ir::Diagnostics& diagnostics,
                                   const std::vector<Raw>& collectives = {});
/// JSON if the first character that isn't white space is '{', else DSL.
std::optional<ir::Graph> parse_graph(int32_t file, ir::Diagnostics& diagnostics,
                                     const std::vector<Raw>& collectives = {});

/// The canonical text: parse(print(g)) == g, and printing that gives the same text.
std::string print_json(const ir::Graph& graph);
std::string print_dsl(const ir::Graph& graph);

/// Parse the syntax only. The tree has the shape of the JSON document in both cases. `begin`: the
/// byte of the file where the graph begins.
std::optional<Raw> parse_json_raw(int32_t file, ir::Diagnostics& diagnostics);
std::optional<Raw> parse_dsl_raw(int32_t file, ir::Diagnostics& diagnostics, size_t begin = 0);

/// The collectives of a file in either spelling; it need not have a graph.
std::optional<Raw> parse_collectives(int32_t file, ir::Diagnostics& diagnostics);
/// The collectives of several files, by path; reports files that can't be read.
std::optional<std::vector<Raw>> read_collectives(const std::vector<std::string>& paths,
                                                 ir::Diagnostics& diagnostics);
std::optional<Raw> parse_dsl_collectives(int32_t file, ir::Diagnostics& diagnostics);

/// A single value of the DSL: "[[bx, bx + 1]]", "{dtype: f32, shape: [4]}".
std::optional<Raw> parse_dsl_value(int32_t file, ir::Diagnostics& diagnostics);

// --- for programs that build a graph themselves ---

/// Reads graph-level keys other than those that declare something ("schedule", "sm_roles") from a
/// map into a graph whose ops have their names, and checks them. Returns false, and leaves the
/// graph as it is, if an error was reported.
bool read_keys(const Raw& keys, ir::Graph& graph, ir::Diagnostics& diagnostics);
/// Adds those of `collectives`, documents of parse_collectives, that ops name as their algorithm.
/// Returns false if an error was reported.
bool add_collectives(const std::vector<Raw>& collectives, ir::Graph& graph,
                     ir::Diagnostics& diagnostics);
/// A list or map as the value of an attribute; reports keys that are given twice. `what`: "'reads'
/// of 'cuda'".
std::optional<ir::AttrTree> read_tree(const Raw& raw, const std::string& what,
                                      ir::Diagnostics& diagnostics);

struct BuildOptions {
  bool open_outputs = false;  // DSL: an output may leave dtype and shape to its op
  /// Statements that couldn't be read were left out of the tree. A missing definition may be in
  /// them, and the graph can't be used.
  bool incomplete = false;
  /// Accept ops and attributes that only passes make, as maco-opt reads dumps.
  bool internal_ops = false;
  std::vector<Raw> collectives{};  // as above
};
/// Validates the tree (unknown and duplicate keys, types, names, `repeat`, cycles), builds and
/// infers the graph.
std::optional<ir::Graph> build(const Raw& root, const BuildOptions& options,
                               ir::Diagnostics& diagnostics);

}  // namespace maco::frontend
