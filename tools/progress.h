// A line on the terminal for what takes long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tools/driver.h"

namespace maco::tools {

/// Shows what is being done, and for how long, once a step has taken two seconds: on standard error
/// if that is a terminal and messages are wanted, and nothing of it stays there.
class Progress {
 public:
  explicit Progress(const Console& console);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// A step begins and ends the one before it; "" only ends that. From any thread.
  void step(std::string_view what);
  /// Tells more of the step that is shown: how far it is.
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
