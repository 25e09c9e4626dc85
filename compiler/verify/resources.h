#pragma once

#include "compiler/verify/report.h"

namespace maco::verify {

/// A scheduled Program's CTAs fit into the SMs of its target, all of them at once, and so do the
/// pages that its tasks need. Presupposes check_structure.
/// `symmetric_limit`: symmetric memory isn't larger than its limit, either.
void check_resources(const ir::Program& program, bool symmetric_limit, Reporter& reporter);

}  // namespace maco::verify
