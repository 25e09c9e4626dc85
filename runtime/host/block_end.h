// Why a block of a user's kernel on the CPU target was given up, in reports (Report::limit of
// kWaitThreads).
#pragma once

#include <cstdint>
#include <string>

namespace maco::runtime {

enum class BlockEnd : uint8_t {
  Waits,       // its threads wait for each other; reported by the kernel itself
  Done,        // it wasn't given up
  Segment,     // SIGSEGV
  Bus,         // SIGBUS
  Arithmetic,  // SIGFPE
  Aborted,     // SIGABRT
  Trapped,     // SIGILL, SIGTRAP
  Late,        // no thread of it ended within the time-out
  Outside,     // it touched a tensor's red zone, as the check of accesses found
  Spoiled,     // after it had run, a tensor's red zone was overwritten
};

/// Describes the end of block `block`, for the sentence "op 'y': ...". `timeout_ms`: 0 if unknown.
std::string describe(BlockEnd end, int64_t block, uint64_t timeout_ms);

}  // namespace maco::runtime
