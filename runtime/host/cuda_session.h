// Kernels on NVIDIA GPUs: all ranks in this process, or one rank of a group; rank r runs on GPU r /
// SessionOptions::ranks_per_gpu.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/session.h"

namespace maco::runtime {

/// Compiles `kernel_source` (by NVRTC, or from the cubin cache) for the target in its manifest,
/// loads it on all ranks, allocates and binds all memory, and lets all ranks meet. Returns null
/// with the reason in `status` if that fails.
///
/// bench() measures, for each launch, the time on the device between an event before and one after
/// the kernel, of the slowest rank. Launches follow each other on the rank's stream, and all are
/// enqueued before the first may start, so that neither the host nor its launch latency counts.
/// States and outputs change as in that many launches.
std::unique_ptr<Session> make_cuda_session(const std::string& kernel_source,
                                           const SessionOptions& options, Status& status);

}  // namespace maco::runtime
