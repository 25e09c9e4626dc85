// Files of the public safetensors format: eight bytes of little-endian header length, a JSON
// header, the tensors' bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/reference/tensor.h"
#include "runtime/status.h"

namespace maco::reference {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // as the file writes it: "BF16"
  Extents shape;                // [] is a single value
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

/// A file opened for reading; tensors are read when asked for. Movable, closes itself.
class SafetensorsFile {
 public:
  SafetensorsFile() = default;
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;

  /// Reads and checks the header: its length and syntax, that every tensor lies within the file
  /// with the size that shape and dtype give, that no two overlap and no bytes are left over. A
  /// dtype that MACO lacks is no error here.
  runtime::Status open(const std::string& path);
  /// In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsEntry* find(std::string_view name) const;
  /// Fails if MACO has no such dtype or the file can't be read.
  runtime::Status read(const SafetensorsEntry& entry, Tensor& tensor) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

/// Writes a new file; if that fails, none is left (what may not be lost if it does is the
/// caller's). The same tensors give the same bytes.
runtime::Status write_safetensors(
    const std::string& path, const std::vector<std::pair<std::string, const Tensor*>>& tensors);

/// "BF16" for bf16, and back.
std::string_view safetensors_name(ir::DType type);
std::optional<ir::DType> dtype_from_safetensors(std::string_view name);

/// The file name of a rank: every "{rank}" replaced. Without one, all ranks share the file.
std::string rank_file(const std::string& pattern, int rank);
/// Whether each rank can write its own file: fails if `pattern` lacks "{rank}" at world > 1.
runtime::Status check_output_pattern(const std::string& pattern, int64_t world);

}  // namespace maco::reference
