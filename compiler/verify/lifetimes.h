#pragma once

#include "compiler/verify/report.h"

namespace maco::verify {

/// In the order of the list of tasks, no byte of a temporary or slot is read after another one was
/// written there. Presupposes check_structure, and addresses.
void check_lifetimes(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
