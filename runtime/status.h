// How an operation of the runtime ended.
#pragma once

#include <string>
#include <utility>

namespace maco::runtime {

/// `ok`, or a sentence for the user (several lines where there is a story to tell).
struct Status {
  bool ok = true;
  std::string message;
  static Status failure(std::string m) { return {false, std::move(m)}; }
  explicit operator bool() const { return ok; }
};

}  // namespace maco::runtime

/// Leaves the function with the failure, if it is one.
#define MACO_TRY(expression)                                                                  \
  do {                                                                                        \
    if (::maco::runtime::Status maco_status = (expression); !maco_status) return maco_status; \
  } while (false)
