// Kernels on NVIDIA GPUs: all ranks in this process, or one of a group's; rank r on GPU r /
// SessionOptions::ranks_per_gpu.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/session.h"

namespace maco::runtime {

/// Compiles `kernel_source` (NVRTC, or the cubin cache) for the target that its manifest names,
/// loads it on all ranks, allocates and binds all memory, and lets all ranks meet. Null with the
/// reason in `status`.
///
/// bench() measures: per launch, the time on the device between an event before and one behind the
/// kernel, of the slowest rank; launches stand back to back on the rank's stream and are all
/// enqueued before the first may start, so that neither the host nor its launch latency is in it.
/// States and outputs change as by that many launches.
std::unique_ptr<Session> make_cuda_session(const std::string& kernel_source,
                                           const SessionOptions& options, Status& status);

}  // namespace maco::runtime
