// Texts of what passes leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/program.h"

namespace maco::frontend {

/// Parses a graph, in JSON or DSL, which may have ops and attributes that only passes make.
/// Returns nothing, after reporting, if there is an error. `algorithms`: files of collectives that
/// the graph's ops may name.
std::optional<ir::Graph> parse_dump(int32_t file, ir::Diagnostics& diagnostics,
                                    const std::vector<std::string>& algorithms = {});

/// Parses a Program and the graph behind it.
std::optional<ir::Program> parse_program(int32_t file, ir::Diagnostics& diagnostics);

}  // namespace maco::frontend
