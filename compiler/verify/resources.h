#pragma once

#include "compiler/verify/report.h"

namespace maco::verify {

/// A scheduled Program's CTAs fit into the SMs of its target, all of them at once, and so do the
/// pages that its tasks need. Presupposes check_structure.
void check_resources(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
