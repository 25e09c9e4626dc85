// Part of insert-sync: local events that are always waited for together become one.
#pragma once

#include "ir/program.h"

namespace maco::passes {

/// Merges local events for which the same tasks wait. Each of these tasks already waits for all of
/// them, so that nothing starts later.
void merge_events(ir::Program& program);

}  // namespace maco::passes
