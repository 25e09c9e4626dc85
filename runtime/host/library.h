// Shared libraries that are opened when needed, so that programs start without them.
#pragma once

#include <string>
#include <vector>

namespace maco::runtime {

/// A library that stays open until the process ends (drivers don't like to be unloaded).
class Library {
 public:
  Library() = default;
  /// Opens the first of `candidates` (names for the loader, or paths) that opens and has the
  /// function `probe`. If there is none, why() says what is wrong with the first existing one.
  static Library open(const std::vector<std::string>& candidates, const char* probe);
  explicit operator bool() const { return handle_ != nullptr; }
  /// The address of a function, or nullptr.
  void* symbol(const char* name) const;
  /// Stores the address of a function in `function`. Returns false if the library lacks it.
  template <class F>
  bool bind(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(name));
    return function != nullptr;
  }
  /// The file that was opened; empty if none was.
  const std::string& path() const { return path_; }
  /// "'FILE' was found but doesn't load: REASON", or that it lacks the function; empty if one
  /// was opened or none was found.
  const std::string& why() const { return why_; }

 private:
  void* handle_ = nullptr;
  std::string path_, why_;
};

/// The value of an environment variable; empty if it isn't set.
std::string environment(const char* name);

/// Where a library of CUDA's may be.
struct LibraryPlaces {
  const char* variable = "";               // an environment variable that names it, or its folder
  std::vector<const char*> names = {};     // "libnvrtc.so.13": first choice first
  std::vector<const char*> packages = {};  // folders among Python's packages: "nvidia/cu13/lib"
};
/// The value of the variable; empty if it isn't set.
std::string chosen_place(const LibraryPlaces& places);
/// Candidates for Library::open. If the variable is set, its value; else the names for the loader,
/// then files under these or longer names ("libnvrtc.so.12.4.127") in $CUDA_HOME, $CUDA_PATH,
/// /usr/local/cuda and Python's packages: those of a .venv in this folder or one above, or above
/// the program, of $VIRTUAL_ENV, and of the first python3 in $PATH.
std::vector<std::string> candidates_of(const LibraryPlaces& places);

}  // namespace maco::runtime
