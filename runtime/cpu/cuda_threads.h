// Blocks of users' CUDA kernels on a host: a fibre for each thread.
#pragma once

namespace maco::runtime {

/// Tells a shared object with users' kernels how their threads are run (cuda/block.h). Does nothing
/// if it has none.
void give_cuda_threads(void* library);

}  // namespace maco::runtime
