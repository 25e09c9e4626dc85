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

  /// Reads and checks the header: its length and syntax, that every tensor lies within the file
  /// with the size that shape and dtype give, that no two overlap and no bytes are left over. A
  /// dtype that MACO lacks is no error here. "", or "path: why".
  std::string open(const std::string& path);
  const std::string& path() const { return path_; }
  /// Of the whole file, and of what is ahead of the tensors' bytes.
  uint64_t bytes() const { return bytes_; }
  uint64_t data_begin() const { return data_begin_; }
  /// In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsEntry* find(std::string_view name) const;
  /// Reads `bytes` bytes from byte `offset` of the file on: "", or "path: why". From any number of
  /// threads at once.
  std::string read(uint64_t offset, void* to, size_t bytes) const;

 private:
  std::string read_header();

  std::string path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0, data_begin_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

/// "BF16" for bf16, and back.
std::string_view safetensors_name(DType type);
std::optional<DType> dtype_from_safetensors(std::string_view name);

}  // namespace maco::ir
