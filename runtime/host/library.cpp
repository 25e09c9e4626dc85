#include "runtime/host/library.h"

#include <dlfcn.h>

namespace maco::runtime {

Library Library::open(const std::vector<std::string>& candidates, const char* probe) {
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) continue;
    void* found = dlsym(handle, probe);
    if (!found) {
      dlclose(handle);
      continue;
    }
    Library library;
    library.handle_ = handle;
    Dl_info info{};
    library.path_ = dladdr(found, &info) && info.dli_fname ? info.dli_fname : candidate;
    return library;
  }
  return {};
}

void* Library::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

}  // namespace maco::runtime
