// The environment variables that the programs read: one table for --help, man pages and checks.
#pragma once

#include <string>
#include <vector>

#include "runtime/status.h"

namespace maco::tools {

struct EnvironmentVariables {
  std::vector<const char*> names;  // listed together
  const char* what;
};
/// All variables that MACO reads.
const std::vector<EnvironmentVariables>& environment_variables();

/// "Environment: MACO_CACHE_DIR, where ...;\n  MACO_CXX, ...", for --help.
std::string environment_text();

/// Fails, naming the variable, if one that all runs read has an invalid value. Variables that only
/// some runs read are checked there.
runtime::Status check_environment();

}  // namespace maco::tools
