// Limits the process's address space for a while: the system then gives neither threads nor stacks,
// as if `ulimit -u` or memory were exhausted. Not for builds with sanitizers, which need address
// space of their own.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

#include "tests/catch.h"

namespace maco::test {

/// False, with a warning, in builds with sanitizers.
inline bool can_limit() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("not tested here: a limit of the address space, with sanitizers");
  return false;
#else
  return true;
#endif
}

class AddressLimit {
 public:
  /// `more` bytes beyond what is in use now.
  explicit AddressLimit(size_t more) {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &old_);
    rlimit limit = old_;
    limit.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + more;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &old_); }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit old_{};
};

}  // namespace maco::test
