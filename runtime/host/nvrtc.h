// NVRTC, the CUDA compiler as a library, opened at run time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/host/session.h"

namespace maco::runtime {

class Nvrtc {
 public:
  /// Opens NVRTC. If $MACO_NVRTC is set (a file, or its folder), only from there; else from the
  /// loader's path, $CUDA_HOME, /usr/local/cuda, and the Python packages of a .venv above the
  /// working directory or the program, of $VIRTUAL_ENV and of the python3 in $PATH. Returns null,
  /// with a one-line reason in `status`, if there is none.
  static std::unique_ptr<Nvrtc> load(Status& status);
  ~Nvrtc();

  /// (13, 0)
  std::pair<int, int> version() const { return version_; }
  const std::string& path() const { return path_; }
  /// Compiles for `arch`: "sm_90a" gives a cubin, "compute_90" gives PTX. `log` gets the compiler's
  /// warnings or errors.
  Status compile(const std::string& source, const std::string& arch,
                 const std::vector<std::string>& options, std::string& image,
                 std::string& log) const;

 private:
  struct Api;
  Nvrtc();
  std::unique_ptr<Api> api_;
  std::pair<int, int> version_{0, 0};
  std::string path_;
};

}  // namespace maco::runtime
