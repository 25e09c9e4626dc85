// The text of a Unit, and back.
#pragma once

#include <optional>
#include <string>

#include "compiler/passes/passes.h"

namespace maco::passes {

std::string to_text(const Unit& unit);
/// Parses `file`: a Program if it begins with that word, else a graph, which may have what only
/// passes make. Returns nothing, after reporting, if there is an error. `algorithms`: files of
/// collectives that a graph's ops may name.
std::optional<Unit> parse_unit(int32_t file, ir::Diagnostics& diagnostics,
                               const std::vector<std::string>& algorithms = {});

}  // namespace maco::passes
