// Is everything that is read written before?
#pragma once

#include "compiler/verify/report.h"
#include "ir/program.h"

namespace maco::verify {

/// Every element of a temporary or output that a task reads has been written on that rank by tasks
/// before it in the list; at the end of the list each element of each output has been. What is read
/// of slots is the contributions' to prove. Presupposes check_structure.
void check_defined(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
