// Compiled kernels on disk, by the hash of all that they were compiled from.
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

/// Safe to use by several threads and processes at once. A cache that can't be read or written
/// behaves as if it were empty, and says why in `note`.
class CubinCache {
 public:
  /// Bytes that entries may take together, where nobody says otherwise.
  static constexpr int64_t kMostBytes = int64_t{2} << 30;

  /// $MACO_CACHE_DIR (empty: no cache), else $XDG_CACHE_HOME/maco, else ~/.cache/maco, else no
  /// cache. Of at most $MACO_CACHE_MB megabytes, or kMostBytes where that isn't set. A failure if
  /// the first is the name of a file, or below one, or the second is no number.
  static CubinCache standard(Status& status);
  /// In `folder`, made when first written to; no cache if empty. When entries take more than
  /// `most_bytes`, those that were used longest ago go.
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
