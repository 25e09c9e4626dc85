// Compiles kernel.cu to a shared object that this process runs, with the host's C++ compiler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cpu/intrinsics/cpu_context.h"
#include "runtime/host/abi.h"
#include "runtime/status.h"

namespace maco::runtime {

struct CpuCompileOptions {
  bool check_access = false;  // kernels call RoleContext::access
  bool verbose = false;       // reports on standard error what is done
  bool quick = false;         // compiles in a third of the time; the code is several times slower
  bool profile = false;       // kernels stamp their tasks
};

/// Whether this kernel.cu has kernels of the user's (ops `cuda`).
bool has_cuda_units(const std::string& kernel_source);

/// Kernels in a loaded shared object.
class CpuLibrary {
 public:
  using Entry = void (*)(Launch);
  ~CpuLibrary();
  CpuLibrary(const CpuLibrary&) = delete;
  CpuLibrary& operator=(const CpuLibrary&) = delete;

  size_t size() const { return kernels_.size(); }
  /// maco_kernel and maco_reset of source `i`. A thread calls `enter` with its context first.
  Entry kernel(size_t i) const { return kernels_[i]; }
  Entry reset(size_t i) const { return resets_[i]; }
  void enter(maco_cpu::RoleContext* context) const { enter_(context); }

  /// Loads the shared object `path` with `count` kernels. Returns null, and a status, if it isn't
  /// one.
  static std::shared_ptr<CpuLibrary> load(const std::string& path, size_t count, Status& status);

 private:
  CpuLibrary() = default;
  void* handle_ = nullptr;
  std::vector<Entry> kernels_, resets_;
  void (*enter_)(maco_cpu::RoleContext*) = nullptr;
};

/// Compiles the kernels into one shared object, or takes it from the cache ($MACO_CACHE_DIR,
/// $XDG_CACHE_HOME/maco or ~/.cache/maco). The compiler is $MACO_CXX (split at blanks), $CXX, or
/// the first of c++, g++, clang++ on PATH.
std::shared_ptr<CpuLibrary> compile_cpu_kernels(const std::vector<std::string>& kernels,
                                                const CpuCompileOptions& options, Status& status);

}  // namespace maco::runtime
