// Why a block of a user's kernel on the CPU target was given up, in reports (Report::limit of
// kWaitThreads).
#pragma once

#include <cstdint>
#include <string>

namespace maco::runtime {

enum class BlockEnd : uint8_t {
  Waits,       // its threads wait for each other; what a kernel itself reports
  Done,        // it wasn't given up
  Segment,     // SIGSEGV
  Bus,         // SIGBUS
  Arithmetic,  // SIGFPE
  Aborted,     // SIGABRT
  Trapped,     // SIGILL, SIGTRAP
  Late,        // no thread of it ended for the time-out
  Outside,     // it touched the red zone of a tensor, as the check of accesses saw
  Spoiled,     // when it had run, the red zone of a tensor was overwritten
};

/// What became of the block `block`, for the sentence "op 'y': ...". `timeout_ms`: 0 if not known.
std::string describe(BlockEnd end, int64_t block, uint64_t timeout_ms);

}  // namespace maco::runtime
