// Do collectives take one value of their operand?
#pragma once

#include "compiler/verify/report.h"
#include "ir/program.h"

namespace maco::verify {

/// Proves that no task writes a part of a collective's operand that some of the collective's tasks
/// have taken, on any rank, while others of the list are still to take it. Presupposes
/// check_structure of a planned Program.
void check_operands(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
