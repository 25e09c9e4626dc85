// Users' CUDA kernels as ordinary launches on the host, block by block; tasks are compared with
// these.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace maco::runtime {

/// A tensor, with all of its memory.
struct CudaTensor {
  std::string name;
  char* data = nullptr;
  size_t bytes = 0;
};

/// Launches the kernel whose text is `original` (ir::CudaUnit::original), with its tensors and
/// integers in the order of its parameters. Compiles the text with the host's C++ compiler, through
/// the cache, and only once in this process. Fails if the kernel crashes, writes outside of its
/// tensors, or has a block of which no thread ends for `timeout_ms`. Thread safe.
Status launch_cuda_kernel(const std::string& original, const std::array<int64_t, 3>& grid,
                          const std::array<int64_t, 3>& block, int64_t shared,
                          const std::vector<CudaTensor>& tensors,
                          const std::vector<int64_t>& numbers, uint64_t timeout_ms);

}  // namespace maco::runtime
