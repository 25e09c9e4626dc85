// How calls of the library end: with a value, or with an Error that says what was wrong. The
// library itself throws nothing, prints nothing and never ends the process.
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
  InvalidArgument,  // the call doesn't fit: an unknown tensor, a size, a value out of its range
  InvalidGraph,     // the graph is wrong or can't be compiled: see Error::diagnostics
  Unavailable,      // no session: no GPU, CUDA driver, NVRTC or C++ compiler that can do it
  RunFailed,        // memory that can't be had, a launch that was stopped or timed out
  Internal,         // a fault of MACO's
};

/// What is wrong with a graph, and where.
struct Diagnostic {
  enum class Severity { Error, Warning, Note };  // a note belongs to the one before it
  Severity severity = Severity::Error;
  std::string file;          // as it was named when it was read; of a builder the caller's source
  int line = 0, column = 0;  // from 1; 0: no place is known
  std::string message;
};

/// Of a launch that stopped: which task of which rank stopped first, and for what it waited.
struct StoppedTask {
  int rank = 0;
  std::string task;   // "task 'y' (matmul) tile 3"; of an index or a value the op's name, or empty
  std::string event;  // empty: it didn't wait
  int64_t expected = 0, seen = 0;  // of the event; of an index how many there are, and the index
};

struct Error {
  ErrorCode code = ErrorCode::InvalidArgument;
  /// For people: of diagnostics their text, with the lines of the source and carets.
  std::string message;
  std::vector<Diagnostic> diagnostics;
  std::optional<StoppedTask> stopped = {};  // RunFailed, where a task is known
};

/// Thrown by Result::value where there is none: a caller's mistake.
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

/// Done, or an Error.
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
