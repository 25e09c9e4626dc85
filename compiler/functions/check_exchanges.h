// Whether tasks do what they declare, where their parameters say what they do.
#pragma once

#include "ir/diagnostics.h"
#include "ir/program.h"

namespace maco::functions {

/// Holds every task of put, combine, take, hop and clear to its call's parameters: it must declare
/// the regions and the transfers that follow from them. Reports the first that doesn't. The
/// verifier proves what is declared and knows no device function; without this a Program with
/// another `peer` or `stride` would be proved right and move something else.
bool check_exchanges(const ir::Program& program, ir::Diagnostics& diagnostics);

}  // namespace maco::functions
