#pragma once

#include "compiler/verify/report.h"

namespace maco::verify {

/// Temporaries that share addresses: as the list of tasks goes, no byte of one is read where
/// another has been written since. Presupposes check_structure, and addresses.
void check_lifetimes(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
