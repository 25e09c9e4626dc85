// Loads params from a checkpoint into a session, or into ordinary memory, at the files' rate: by
// several threads, without a copy of any file or tensor.
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
  /// Told how many bytes of how many are loaded, by the thread that calls: at most ten times a
  /// second, and at the end.
  std::function<void(int64_t done, int64_t total)> progress = {};
  const std::atomic<bool>* stop = nullptr;  // ends it once true, with a failure
  int threads = 0;                          // 0: as many as the machine suggests
  size_t slice_bytes = size_t{4} << 20;  // of a thread: two on GPUs, and a buffer of twice as much
};
inline constexpr const char* kLoadStopped = "loading was stopped by its caller";

/// A param of a kernel.
struct WeightWanted {
  std::string name;
  ir::DType dtype = ir::DType::F32;
  std::vector<int64_t> shape;
};
std::vector<WeightWanted> params_of(const ir::Manifest& manifest);
/// Whether the map is for so many ranks, and has all these params as they are here; a failure names
/// those that it lacks, or the first that differs.
Status check_weights(const WeightMap& map, int64_t world, const std::vector<WeightWanted>& params);

/// The params of a session's kernel on the ranks of this process, as targets; `map` has them all.
/// Their memory is the session's: places have none.
std::vector<WeightTarget> targets_of(const WeightMap& map, const Session& session);
/// Sources of these targets.
std::vector<size_t> sources_of(const std::vector<WeightTarget>& targets);

/// Fills params of one session: allocates those that have no memory, and writes them all. Not while
/// it launches. After a failure they hold anything. `files` has their sources.
Status load_weights(Session& session, const WeightMap& map, const WeightFiles& files,
                    std::vector<WeightTarget> targets, const LoadOptions& options = {});

/// Fills params whose places have memory of their own.
Status read_weights(const WeightMap& map, const WeightFiles& files,
                    const std::vector<WeightTarget>& targets, const LoadOptions& options = {});

}  // namespace maco::runtime
