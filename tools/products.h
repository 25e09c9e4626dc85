// Files that a tool writes: all of them completely, or none is changed.
#pragma once

#include <string>
#include <vector>

namespace maco::tools {

/// Whether `path` can be written, as far as can be seen without writing it: its folder is there and
/// may be written, and it is no folder itself. `error` says why not.
bool can_write(const std::string& path, std::string& error);

/// A set of files. What is written for them goes to temporary files beside them, which take their
/// places together.
class Products {
 public:
  Products() = default;
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// The file to write now for `path`; a device or a pipe, which can't be replaced, itself.
  std::string begin(const std::string& path);
  /// All take their places. If one can't, none has, and `error` says why. Without it the files that
  /// were begun are removed.
  bool finish(std::string& error);

 private:
  struct File {
    std::string path, temporary;
  };
  std::vector<File> files_;
};

/// Writes all or nothing; "-" is standard output.
bool write_product(const std::string& path, const std::string& bytes, std::string& error);

}  // namespace maco::tools
