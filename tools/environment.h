// What the programs read from their environment: one table for --help, man pages and checks.
#pragma once

#include <string>
#include <vector>

#include "runtime/status.h"

namespace maco::tools {

struct EnvironmentVariables {
  std::vector<const char*> names;  // that are told together
  const char* what;
};
/// All that MACO reads.
const std::vector<EnvironmentVariables>& environment_variables();

/// "Environment: MACO_CACHE_DIR, where ...;\n  MACO_CXX, ...", for --help.
std::string environment_text();

/// A failure that names a variable of all runs whose value can't be. What only some runs read, they
/// refuse themselves.
runtime::Status check_environment();

}  // namespace maco::tools
