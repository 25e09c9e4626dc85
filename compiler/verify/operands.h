// Do collectives take one value of their operand?
#pragma once

#include "compiler/verify/report.h"
#include "ir/program.h"

namespace maco::verify {

/// Nobody writes a part of a collective's operand that some of its tasks have taken, on whatever
/// rank, and others of the list are still to take. Presupposes check_structure of a planned
/// Program.
void check_operands(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
