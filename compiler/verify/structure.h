#pragma once

#include "compiler/verify/report.h"

namespace maco::verify {

/// What can be seen without following an order: ids, bounds, who may write what, addresses,
/// streams, roles, sync of the right form.
void check_structure(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
