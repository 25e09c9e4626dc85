// Shared libraries that are opened when they are needed, so that the programs start without them.
#pragma once

#include <string>
#include <vector>

namespace maco::runtime {

/// A library that stays open until the process ends (drivers don't like to be unloaded).
class Library {
 public:
  Library() = default;
  /// Opens the first of `candidates` (names for the loader, or paths) that opens and has the
  /// function `probe`.
  static Library open(const std::vector<std::string>& candidates, const char* probe);
  explicit operator bool() const { return handle_ != nullptr; }
  /// The address of a function, or nullptr.
  void* symbol(const char* name) const;
  /// The file that was opened; empty if none was.
  const std::string& path() const { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace maco::runtime
