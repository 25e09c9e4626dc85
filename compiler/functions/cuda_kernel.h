// The device function that runs blocks of a user's kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/program.h"

namespace maco::functions {

/// Scratch memory, in bytes, of one block among those that a task runs at once: its place in the
/// grid, then its shared memory.
int64_t cuda_slot_bytes(int64_t static_shared, int64_t dynamic_shared);

/// For each buffer: whether it is a temporary that users' kernels get on the CPU target. Such a
/// temporary shares its bytes with no other, and kRedZoneBytes on either side of it stay free.
std::vector<bool> users_temporaries(const ir::Program& program);
inline constexpr int64_t kRedZoneBytes = 2048;

}  // namespace maco::functions
