// Broken invariants of MACO itself.
#pragma once

#include <stdexcept>
#include <string>

namespace maco::ir {

/// Thrown by MACO_CHECK; the tools report it with exit status 70.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

/// Throws; `what` says which invariant of MACO is broken.
[[noreturn]] inline void internal_error(const char* file, int line, const std::string& what) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

}  // namespace maco::ir

/// An invariant that holds whatever the user wrote. If it doesn't, that is a bug in MACO.
#define MACO_CHECK(condition, what)                                                       \
  do {                                                                                    \
    if (!(condition))                                                                     \
      ::maco::ir::internal_error(__FILE__, __LINE__,                                      \
                                 std::string("check failed: " #condition ": ") + (what)); \
  } while (false)
