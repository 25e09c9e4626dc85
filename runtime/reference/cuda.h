// Users' kernels in the reference: their original text, compiled for the host and run as CUDA would
// launch it, block by block. Code that can compile and run it registers here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace maco::reference {

struct CudaLaunch {
  struct Tensor {
    std::string name;
    char* data = nullptr;
    size_t bytes = 0;
  };
  const std::string& original;  // ir::CudaUnit::original
  std::array<int64_t, 3> grid{}, block{};
  int64_t shared = 0;
  std::vector<Tensor> tensors{};   // in the order of the kernel's parameters
  std::vector<int64_t> numbers{};  // its integers, likewise
};
using CudaLauncher = std::function<runtime::Status(const CudaLaunch&)>;

/// Makes `launcher` run the kernels of the whole process. Called before the first graph with one is
/// run.
void set_cuda_launcher(CudaLauncher launcher);

}  // namespace maco::reference
