// The text form of ir::Program. parse(print(p)) == p at every stage; print(parse(t)) is canonical.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ir/program.h"

namespace maco::ir {

/// Deterministic; about one line an entity. docs/how-it-works.md describes the syntax.
std::string print(const Program& program);

/// Parses the graph that begins at byte `begin` of file `file` and ends with it. Returns nothing,
/// after reporting, if there is an error.
using GraphParser =
    std::function<std::optional<Graph>(int32_t file, size_t begin, Diagnostics& diagnostics)>;

/// Parses file `file` of `diagnostics` (add_file). Reports all errors that it finds, and returns
/// nothing if there was one. Checks syntax and that names resolve; what a stage promises is the
/// verifier's to check. `parse_graph` parses the graph behind the Program, as
/// frontend::parse_program has it; without it the graph is left out.
std::optional<Program> parse_program(int32_t file, Diagnostics& diagnostics,
                                     const GraphParser& parse_graph = {});

/// Whether a text is a Program's: it begins with the word `program`, after comments.
bool is_program_text(std::string_view text);

}  // namespace maco::ir
