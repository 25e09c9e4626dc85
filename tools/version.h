// The text of --version.
#pragma once

#include <string>

namespace maco::tools {

/// "0.1.0".
const char* version();

/// The version, what was built in, and which of the things opened at run time this machine has:
/// driver and GPUs, NVRTC, NCCL, the C++ compiler of the CPU target.
std::string version_text();

}  // namespace maco::tools
