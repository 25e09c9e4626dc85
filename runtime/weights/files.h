// The files of a checkpoint, checked against a map.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ir/safetensors.h"
#include "runtime/status.h"
#include "runtime/weights/map.h"

namespace maco::runtime {

class WeightFiles {
 public:
  /// Opens the files with these sources (indices into map.sources; other files may be missing), and
  /// checks each: the file's size, and that each tensor is there with its dtype, shape and place.
  /// `map` must outlive the object.
  Status open(const WeightMap& map, const std::string& folder, const std::vector<size_t>& sources);

  /// Reads `bytes` bytes, from byte `offset` on, of a source that was opened. Any number of threads
  /// may read at once.
  Status read(const WeightSource& source, int64_t offset, void* to, size_t bytes) const;

 private:
  Status open_file(const WeightFile& file, const std::string& folder, ir::SafetensorsFile& to);

  std::vector<std::unique_ptr<ir::SafetensorsFile>> files_;  // one for each of the map's, or null
};

}  // namespace maco::runtime
