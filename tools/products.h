// Files that a tool writes: either all of them completely, or none is changed.
#pragma once

#include <string>
#include <vector>

namespace maco::tools {

/// Whether `path` can be written, as far as can be found out without writing: its folder exists and
/// may be written, and it isn't a folder itself. `error` says why not.
bool can_write(const std::string& path, std::string& error);

/// A set of files. Their content goes to temporary files beside them, which then replace them
/// together.
class Products {
 public:
  Products() = default;
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// The file to write now for `path`. A device or a pipe can't be replaced and is returned itself.
  std::string begin(const std::string& path);
  /// Replaces all files. If one can't be replaced, none is, and `error` says why. Without this call
  /// the temporary files are removed.
  bool finish(std::string& error);

 private:
  struct File {
    std::string path, temporary;
  };
  std::vector<File> files_;
};

/// Writes everything or nothing; "-" is standard output.
bool write_product(const std::string& path, const std::string& bytes, std::string& error);

}  // namespace maco::tools
