// The files of a checkpoint, held to what a map says of them.
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
  /// Opens those that have one of these sources (indices into map.sources; others may be missing)
  /// and checks each: the file's size, and that the tensor is there with its dtype, shape and
  /// place. `map` must outlive the object.
  Status open(const WeightMap& map, const std::string& folder, const std::vector<size_t>& sources);

  /// Reads `bytes` bytes from byte `offset` of a source that was opened on. From any number of
  /// threads at once.
  Status read(const WeightSource& source, int64_t offset, void* to, size_t bytes) const;

 private:
  Status open_file(const WeightFile& file, const std::string& folder, ir::SafetensorsFile& to);

  std::vector<std::unique_ptr<ir::SafetensorsFile>> files_;  // one a file of the map, or null
};

}  // namespace maco::runtime
