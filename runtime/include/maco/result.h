// The results of the library's calls: a value, or an Error that says what was wrong. The library
// itself throws nothing, prints nothing and never ends the process.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "maco/export.h"

namespace maco {

enum class ErrorCode {
  InvalidArgument,  // an argument is wrong: an unknown tensor, a size, a value out of its range
  InvalidGraph,     // the graph is wrong or can't be compiled: see Error::diagnostics
  Unavailable,      // no session: no suitable GPU, CUDA driver, NVRTC or C++ compiler
  RunFailed,        // no memory, or a launch that was stopped or timed out
  Internal,         // a fault of MACO's
};

/// What is wrong with a graph, and where.
struct Diagnostic {
  enum class Severity { Error, Warning, Note };  // a note belongs to the diagnostic before it
  Severity severity = Severity::Error;
  std::string file;          // the name under which it was read; for a builder the caller's source
  int line = 0, column = 0;  // from 1; 0: unknown
  std::string message;
};

/// For a launch that stopped: which task of which rank stopped first, and for what it waited.
struct StoppedTask {
  int rank = 0;
  std::string task;   // "task 'y' (matmul) tile 3"; for an index or a value the op's name, or empty
  std::string event;  // empty: it didn't wait
  int64_t expected = 0, seen = 0;  // of the event; for an index: the limit, and the index
};

struct Error {
  ErrorCode code = ErrorCode::InvalidArgument;
  /// For people; includes the text of diagnostics, with source lines and carets.
  std::string message;
  std::vector<Diagnostic> diagnostics;
  std::optional<StoppedTask> stopped = {};  // RunFailed, if a task is known
};

/// Thrown by Result::value if there is none, which is a caller's mistake.
class BadResult : public std::logic_error {
 public:
  explicit BadResult(const Error& error) : std::logic_error(error.message) {}
};

/// A T or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: either
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: is one

  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  /// Throws BadResult if there is an error instead.
  T& value() & { return check(), std::get<0>(held_); }
  const T& value() const& { return check(), std::get<0>(held_); }
  T value() && { return check(), std::get<0>(std::move(held_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  /// Only if not ok().
  const Error& error() const { return std::get<1>(held_); }

 private:
  void check() const {
    if (!ok()) throw BadResult(error());
  }
  std::variant<T, Error> held_;
};

/// Ok, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: an error is a result

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  /// Throws BadResult if there is an error.
  void value() const {
    if (error_) throw BadResult(*error_);
  }
  /// Only if not ok().
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};
using Status = Result<void>;

}  // namespace maco
