// The text form of ir::Program. parse(print(p)) == p at every stage; print(parse(t)) is canonical.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/program.h"

namespace maco::ir {

/// Deterministic; about one line an entity. docs/how-it-works.md describes the syntax.
std::string print(const Program& program);

/// Parses file `file` of `diagnostics` (add_file). Reports all errors it finds; nothing if there
/// was one. Checks syntax and that names resolve, not what a stage promises: that is the
/// verifier's.
std::optional<Program> parse_program(int32_t file, Diagnostics& diagnostics);

/// Whether a text is that of a Program: it begins with the word `program`, behind comments.
bool is_program_text(std::string_view text);

}  // namespace maco::ir
