// What tests ask of the fake CUDA driver, which they open as libcuda.so.1.
#pragma once

#include <cstdint>

namespace fake {

/// A launch of maco_kernel.
struct Launched {
  int device = 0;
  int rank = 0;
  const void* stream = nullptr;
  uint32_t epoch = 0;
  void* const* tensors = nullptr;  // Launch::tensors
};

/// By dlsym("fake_controls").
struct Controls {
  int (*launches)();
  Launched (*launch)(int i);
  /// Lets the next launch of that rank stop as at an index out of range.
  void (*stop_next)(int rank);
  void (*capture)(void* stream, bool on);
  int (*maps)();  // encoded so far
  /// Allocations, streams, events, modules and contexts that are there.
  int (*alive)();
};

}  // namespace fake
