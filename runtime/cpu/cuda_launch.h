// Users' CUDA kernels as ordinary launches on the host, block by block: what tasks are compared
// with.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace maco::runtime {

/// A tensor: all of its memory.
struct CudaTensor {
  std::string name;
  char* data = nullptr;
  size_t bytes = 0;
};

/// A launch of the kernel whose text is `original` (ir::CudaUnit::original), with its tensors and
/// integers in the order of its parameters. Compiles it with the host's C++ compiler, through the
/// cache; a text that was compiled before in this process isn't compiled again. A kernel that
/// crashes, writes beside its tensors, or has a block of which no thread ends for `timeout_ms` is a
/// failure. Thread safe.
Status launch_cuda_kernel(const std::string& original, const std::array<int64_t, 3>& grid,
                          const std::array<int64_t, 3>& block, int64_t shared,
                          const std::vector<CudaTensor>& tensors,
                          const std::vector<int64_t>& numbers, uint64_t timeout_ms);

}  // namespace maco::runtime
