// Does a task overwrite what it still reads?
#pragma once

#include "compiler/verify/report.h"
#include "ir/program.h"

namespace maco::verify {

/// No task writes bytes that it also reads or writes as something else: within a task nothing is
/// ordered. The same region may be read and written: each element is read before it is written
/// (what a device function does that works in place). Presupposes check_structure of a planned
/// Program.
void check_overlays(const ir::Program& program, Reporter& reporter);

}  // namespace maco::verify
