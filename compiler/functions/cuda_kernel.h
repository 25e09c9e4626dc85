// The device function that runs blocks of a user's kernel.
#pragma once

#include <cstdint>

namespace maco::functions {

/// Scratch memory of a block that runs as a task, or of one of several that do at once: its place
/// in the grid, then its shared memory.
int64_t cuda_slot_bytes(int64_t static_shared, int64_t dynamic_shared);

}  // namespace maco::functions
