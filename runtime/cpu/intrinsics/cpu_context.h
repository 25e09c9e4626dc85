// What an executor (runtime/cpu/executor.h) provides to each context in which kernel code runs: one
// for each warp role of each CTA of each rank. Part of every compiled kernel and of the runtime
// that loads it.
#pragma once

#include <cstdint>
#include <cstring>

namespace maco_cpu {

struct RoleContext {
  char* memory = nullptr;           // the CTA's shared memory, zero at the start of a launch
  char* mate_memory = nullptr;      // of the pair's other CTA, if there is one
  int rank = 0, cta = 0, role = 0;  // role 0: consumer, 1: loader, 2: signaller
  /// Nanoseconds; may be virtual.
  std::uint64_t (*now)(RoleContext*) = nullptr;
  /// `word` was polled in vain, `spins` times so far.
  void (*pause)(RoleContext*, const void* word, unsigned spins) = nullptr;
  /// Called before and after a store for which somebody may wait.
  void (*changing)(RoleContext*, const void* word) = nullptr;
  void (*changed)(RoleContext*, const void* word) = nullptr;
  /// A task begins (before its waits) or ends.
  void (*task)(RoleContext*, int place, bool begins) = nullptr;
  /// Only in kernels compiled with MACO_CHECK_ACCESS: an op touches memory of a tensor, the arena
  /// or a slot.
  void (*access)(RoleContext*, const void* address, std::uint64_t bytes, bool writes) = nullptr;
  /// Likewise in a user's CUDA kernel, wherever the memory lies: on its stack, in shared memory.
  void (*touched)(RoleContext*, const void* address, std::uint64_t bytes, bool writes) = nullptr;
  /// Whether a loader loads as soon as its task's waits are over; else it loads after its
  /// consumers' wait.
  bool scouts = true;
};

// The version of this interface; a kernel compiled for another version is refused.
constexpr int kInterface = 5;

}  // namespace maco_cpu
