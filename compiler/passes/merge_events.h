// Part of insert-sync: local events that always come together become one.
#pragma once

#include "ir/program.h"

namespace maco::passes {

/// Merges local events that the same tasks wait for: each of these tasks waits for all of them
/// already, so that nothing starts later.
void merge_events(ir::Program& program);

}  // namespace maco::passes
