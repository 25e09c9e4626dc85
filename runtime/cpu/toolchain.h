// The host's C++ compiler: which it is, how it is called, how it is run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/status.h"

namespace maco::runtime {

/// The command with its first arguments, the program as a path; empty with a status if there is
/// none.
std::vector<std::string> find_cpu_compiler(Status& status);

/// Flags for kernels: optimisation, no contraction, the instructions that this CPU has, sanitizers
/// of this build.
std::vector<std::string> cpu_kernel_flags(bool check_access, bool profile);

/// Includes of the standard's headers that words.h hasn't, if the text of a user's kernel may need
/// them: they take as long to read as all else.
std::string standard_headers(std::string_view text);

/// What tells one compiler from another without running it: path, size and time of the program.
std::string identity_of(const std::string& program);

/// Runs a command and waits for it. False if it could not be run or did not return 0; `output` has
/// what it wrote on both streams.
bool run_command(const std::vector<std::string>& command, std::string& output);

}  // namespace maco::runtime
