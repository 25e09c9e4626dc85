// A line on the terminal for steps that take long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tools/driver.h"

namespace maco::tools {

/// Shows the current step and its duration once it has taken two seconds: on standard error, if
/// that is a terminal and messages are wanted. Nothing of it stays there.
class Progress {
 public:
  explicit Progress(const Console& console);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Begins a step and ends the previous one; "" only ends that. From any thread.
  void step(std::string_view what);
  /// Updates the step's text: how far it is.
  void update(std::string_view what);

 private:
  void show();

  const bool shown_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  uint64_t steps_ = 0;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace maco::tools
