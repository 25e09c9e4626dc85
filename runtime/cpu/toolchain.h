// The host's C++ compiler: which one it is, how it is called and run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace maco::runtime {

/// The compiler's command with its first arguments; the program is a path. Empty, with a status, if
/// there is no compiler.
std::vector<std::string> find_cpu_compiler(Status& status);

/// Flags for kernels: optimisation, no contraction, this CPU's instructions, this build's
/// sanitizers.
std::vector<std::string> cpu_kernel_flags(bool check_access, bool profile);

/// Puts `flags` before the options that the user gave with the compiler. The last of two that
/// contradict each other counts, so that MACO_CXX="c++ -O0" is a quick compilation.
void add_flags(std::vector<std::string>& command, std::vector<std::string> flags);

/// Includes of standard headers that words.h lacks, if the text of a user's kernel may need them:
/// reading them takes as long as everything else.
std::string standard_headers(std::string_view text);

/// Identifies a compiler without running it: by the program's path, size and time.
std::string identity_of(const std::string& program);

/// Runs a command and waits for it. Returns false if it couldn't be run or didn't return 0;
/// `output` gets what it wrote on both streams.
bool run_command(const std::vector<std::string>& command, std::string& output);

}  // namespace maco::runtime
