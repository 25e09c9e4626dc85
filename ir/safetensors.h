// Files of the public safetensors format: eight bytes of little-endian header length, a JSON
// header, the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace maco::ir {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // as the file writes it: "BF16"
  std::vector<int64_t> shape;   // [] is a single value
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

/// A file opened for reading. Movable, closes itself.
class SafetensorsFile {
 public:
  SafetensorsFile() = default;
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;

  /// Opens the file, reads its header and checks its length and syntax. Every tensor must lie
  /// within the file and have the size that its shape and dtype give. No two may overlap, and no
  /// bytes may be left over. A dtype that MACO lacks is no error here. Returns "", or "path: why".
  std::string open(const std::string& path);
  const std::string& path() const { return path_; }
  /// The bytes of the whole file, and where the tensors' bytes begin.
  uint64_t bytes() const { return bytes_; }
  uint64_t data_begin() const { return data_begin_; }
  /// The tensors in the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsEntry* find(std::string_view name) const;
  /// Reads `bytes` bytes from byte `offset` of the file. Returns "", or "path: why". Any number of
  /// threads may read at once.
  std::string read(uint64_t offset, void* to, size_t bytes) const;

 private:
  std::string read_header();

  std::string path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0, data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

/// Converts bf16 to "BF16", and back.
std::string_view safetensors_name(DType type);
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace maco::ir
