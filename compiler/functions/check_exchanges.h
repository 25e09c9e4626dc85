// Checks that tasks do what they declare, where their parameters say what they do.
#pragma once

#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::functions {

/// Checks each task of put, combine, take, hop and clear against its call's parameters: it must
/// declare the regions and the transfers that follow from them. Reports the first task that
/// doesn't. The verifier proves what is declared and knows no device function. Without this check a
/// Program with another `peer` or `stride` would be proved right and move something else.
bool check_exchanges(const ir::Program& program, ir::Diagnostics& diagnostics);

}  // namespace maco::functions
