// How an operation of the runtime ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace maco::runtime {

/// For a launch that stopped: what stopped first.
struct Stopped {
  int rank = 0;
  std::string task;   // "task 'y' (matmul) tile 3"; of an index or value the op's name
  std::string event;  // what it waited for; empty: it didn't wait
  int64_t expected = 0, seen = 0;
};

/// `ok`, or a sentence for the user (several lines if one isn't enough).
struct Status {
  bool ok = true;
  std::string message;
  std::optional<Stopped> stopped{};  // if a launch did
  static Status failure(std::string m) { return {false, std::move(m)}; }
  explicit operator bool() const { return ok; }
};

}  // namespace maco::runtime

/// Leaves the function with the failure, if it is one.
#define MACO_TRY(expression)                                                                  \
  do {                                                                                        \
    if (::maco::runtime::Status maco_status = (expression); !maco_status) return maco_status; \
  } while (false)
