// Compiles C++ into a shared object with the host's compiler, or takes it from the cache
// ($MACO_CACHE_DIR, $XDG_CACHE_HOME/maco or ~/.cache/maco), and opens it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace maco::runtime {

struct SourceFile {
  std::string name, text;
};

/// `files`: the first is compiled; it may include the others, and MACO's headers for hosts.
/// `command`: the compiler with its flags. `load` opens the shared object at a path, which may be
/// gone once it has returned.
Status compile_and_load(const std::vector<SourceFile>& files, std::vector<std::string> command,
                        bool verbose, const std::function<Status(const std::string& path)>& load);

}  // namespace maco::runtime
