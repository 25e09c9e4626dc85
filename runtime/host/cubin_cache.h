// Compiled kernels on disk, by the hash of everything from which they were compiled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/status.h"

namespace maco::runtime {

/// The name of an entry: 64 hex digits.
std::string cubin_key(const std::string& source, const std::string& arch,
                      std::pair<int, int> nvrtc_version, const std::vector<std::string>& options);

/// Several threads and processes may use the cache at once. A cache that can't be read or written
/// behaves as if it were empty, and says why in `note`.
class CubinCache {
 public:
  /// The most bytes of all entries together, by default.
  static constexpr int64_t kMostBytes = int64_t{2} << 30;

  /// The cache in $MACO_CACHE_DIR (empty: no cache), else in $XDG_CACHE_HOME/maco, else in
  /// ~/.cache/maco, else no cache. Its limit is $MACO_CACHE_MB megabytes, or kMostBytes if that
  /// isn't set. Fails if $MACO_CACHE_DIR is a file's name or below one, or $MACO_CACHE_MB is no
  /// number.
  static CubinCache standard(Status& status);
  /// A cache in `folder`, which is made at the first write; no cache if empty. When entries take
  /// more than `most_bytes`, the least recently used are removed.
  explicit CubinCache(std::string folder, int64_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  const std::string& folder() const { return folder_; }
  int64_t most_bytes() const { return most_bytes_; }
  /// The entry, or nothing if it is absent or damaged (length and checksum are checked).
  std::optional<std::string> load(const std::string& key, std::string& note) const;
  /// Writes the entry, replacing what is there; false if that failed.
  bool store(const std::string& key, const std::string& image, std::string& note) const;

 private:
  std::string folder_;
  int64_t most_bytes_;
};

}  // namespace maco::runtime
