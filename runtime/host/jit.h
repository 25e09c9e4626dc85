// Compiles a kernel's source to code that a GPU runs.
#pragma once

#include <string>
#include <vector>

#include "runtime/host/session.h"

namespace maco::runtime {

/// The options with which every kernel is compiled. No contraction: `a * b + c` of two ops must
/// round twice, whether or not they were fused into one function. `profile`: tasks are stamped
/// (runtime/device/profile.cuh).
std::vector<std::string> kernel_compile_options(bool profile = false);

/// Compiles with NVRTC for `arch` ("sm_90a": a cubin; "compute_90": PTX), or takes the result from
/// the cubin cache. `verbose`: reports on standard error what is done.
Status compile_kernel(const std::string& source, const std::string& arch, bool verbose,
                      std::string& image, bool profile = false);

/// An architecture as NVRTC names it.
struct Arch {
  int major = 0, minor = 0;
  char suffix = 0;  // 'a': only this one; 'f': its family; 0: this and later minor versions
};
/// Parses "sm_90a" or "sm_120"; nullopt for any other text.
std::optional<Arch> parse_arch(const std::string& name);
/// Whether a cubin for `arch` runs on a device of compute capability major.minor.
bool runs_on(const Arch& arch, int major, int minor);
/// Whether PTX for `arch` runs there: without a suffix it does on every later device, whose driver
/// compiles it.
bool ptx_runs_on(const Arch& arch, int major, int minor);

}  // namespace maco::runtime
