// What the targets of this folder share. A target is a file `<name>_target.cpp` that defines
// libFuzzer's function: it gets any bytes and returns, without throwing, after reporting what is
// wrong with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace maco::inputs {

inline std::string text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// What must hold of each input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tests/inputs: %s\n", what);
  std::abort();
}

/// A file in memory with these bytes; closed at the end.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace maco::inputs
