#pragma once

#include "compiler/verify/report.h"

namespace maco::verify {

/// In the order of the list of tasks, no byte of a temporary is read after another temporary was
/// written there. Presupposes check_structure, and addresses.
void check_lifetimes(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
