// Tensors of safetensors files, read and written whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/safetensors.h"
#include "runtime/reference/tensor.h"
#include "runtime/status.h"

namespace maco::reference {

using ir::dtype_from_safetensors;
using ir::safetensors_name;
using ir::SafetensorsEntry;

/// A file opened for reading (ir/safetensors.h); tensors are read when asked for.
class SafetensorsFile {
 public:
  runtime::Status open(const std::string& path);
  /// In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return file_.entries(); }
  const SafetensorsEntry* find(std::string_view name) const { return file_.find(name); }
  /// Fails if MACO has no such dtype or the file can't be read.
  runtime::Status read(const SafetensorsEntry& entry, Tensor& tensor) const;

 private:
  ir::SafetensorsFile file_;
};

/// Writes a new file. If that fails, no file is left, so the caller must take care of an old file
/// that must not be lost. The same tensors give the same bytes.
runtime::Status write_safetensors(
    const std::string& path, const std::vector<std::pair<std::string, const Tensor*>>& tensors);

/// The file name of a rank: every "{rank}" replaced. Without one, all ranks share the file.
std::string rank_file(const std::string& pattern, int rank);
/// Whether each rank can write its own file: fails if `pattern` lacks "{rank}" at world > 1.
runtime::Status check_output_pattern(const std::string& pattern, int64_t world);

}  // namespace maco::reference
