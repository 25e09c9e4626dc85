// Controls for tests: of the fake CUDA driver, which they open as libcuda.so.1, and of the fake
// NCCL, libnccl.so.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fake {

/// A launch of maco_kernel that ran.
struct Launched {
  int device = 0;
  int rank = 0;
  const void* stream = nullptr;
  uint32_t epoch = 0;
  void* const* tensors = nullptr;    // Launch::tensors
  bool numbered = false;             // by itself
  bool early = false;                // it might begin before the launch in front has ended
  int64_t variable = 0;              // then: the first dim or scalar that it found
  char* const* symmetric = nullptr;  // Launch::symmetric
};

/// Found by dlsym("fake_controls").
struct Controls {
  int (*launches)();
  Launched (*launch)(int i);
  /// Makes the next launch of that rank stop as for an index out of range.
  void (*stop_next)(int rank);
  /// Makes the next launch of that rank fail to start.
  void (*fail_next)(int rank);
  /// Makes the next launch of that rank run until it is told to stop.
  void (*hold_next)(int rank);
  /// Makes the last of the next `copies` copies to a device fail.
  void (*fail_copy)(int copies);
  /// Begins or ends a capture; beginning one forgets what the stream had before. Until it ends,
  /// what CUDA forbids fails on all threads, unless they have allowed it.
  void (*capture)(void* stream, bool on);
  /// Launches what was captured on a stream.
  void (*replay)(void* stream);
  /// Sets how many numbered launches are left until a reset.
  void (*set_left)(int rank, uint32_t left);
  int (*resets)();  // so far
  int (*maps)();    // encoded so far
  /// How many allocations, streams, events, modules and contexts exist.
  int (*alive)();
};

/// A call of NCCL. `more`: a reduction, a root or a peer; `sms`: the communicator's most.
struct NcclCall {
  int rank = 0;
  std::string what;
  size_t count = 0;
  int type = 0, more = 0, sms = 0;
};
/// Found by dlsym("fake_nccl_controls").
struct NcclControls {
  /// The calls since the last time.
  void (*take)(std::vector<NcclCall>& calls);
  int (*communicators)();  // existing ones, and windows
};

}  // namespace fake
