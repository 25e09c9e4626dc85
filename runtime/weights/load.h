// Loads params from a checkpoint into a session, or into ordinary memory, as fast as files can be
// read: by several threads, without a copy of any file or tensor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/manifest.h"
#include "runtime/host/session.h"
#include "runtime/weights/files.h"
#include "runtime/weights/map.h"
#include "runtime/weights/slices.h"

namespace maco::runtime {

struct LoadOptions {
  /// Called with the loaded and the total bytes, on the calling thread: at most ten times a second,
  /// and at the end.
  std::function<void(int64_t done, int64_t total)> progress = {};
  const std::atomic<bool>* stop = nullptr;  // ends the load, with a failure, once true
  int threads = 0;                          // 0: as many as the machine suggests
  size_t slice_bytes = size_t{4} << 20;     // of a thread; two on GPUs, and a buffer of twice that
};
inline constexpr const char* kLoadStopped = "loading was stopped by its caller";

/// A param of a kernel.
struct WeightWanted {
  std::string name;
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape;
};
std::vector<WeightWanted> params_of(const ir::Manifest& manifest);
/// Checks that the map is for `world` ranks and has all these params with their types and shapes. A
/// failure names the missing ones, or the first that differs.
Status check_weights(const WeightMap& map, int64_t world, const std::vector<WeightWanted>& params);

/// The params of a session's kernel on the ranks of this process, as targets; `map` must have them
/// all. Their memory is the session's: places have none.
std::vector<WeightTarget> targets_of(const WeightMap& map, const Session& session);
/// The sources of these targets.
std::vector<size_t> sources_of(const std::vector<WeightTarget>& targets);

/// Fills params of one session: allocates those without memory, and writes them all. Not while
/// launching. After a failure they hold anything. `files` must have their sources.
Status load_weights(Session& session, const WeightMap& map, const WeightFiles& files,
                    std::vector<WeightTarget> targets, const LoadOptions& options = {});

/// Fills params whose places have memory of their own.
Status read_weights(const WeightMap& map, const WeightFiles& files,
                    const std::vector<WeightTarget>& targets, const LoadOptions& options = {});

}  // namespace maco::runtime
