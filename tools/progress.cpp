#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace maco::tools {

Progress::Progress(const Console& console) : shown_(!console.quiet && isatty(STDERR_FILENO)) {
  if (shown_) thread_ = std::thread([this] { show(); });
}

Progress::~Progress() {
  if (!shown_) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Progress::step(std::string_view what) {
  if (!shown_) return;
  {
    const std::lock_guard lock(mutex_);
    what_ = what;
    ++steps_;
  }
  changed_.notify_all();
}

void Progress::update(std::string_view what) {
  if (!shown_) return;
  const std::lock_guard lock(mutex_);
  what_ = what;
}

void Progress::show() {
  constexpr std::chrono::seconds kPatience(2), kTick(1);
  std::unique_lock lock(mutex_);
  while (!done_) {
    const uint64_t step = steps_;
    const auto begin = std::chrono::steady_clock::now();
    const auto over = [&] { return done_ || steps_ != step; };
    size_t width = 0;
    for (auto next = begin + kPatience; !changed_.wait_until(lock, next, over); next += kTick) {
      if (what_.empty()) continue;
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(next - begin).count();
      const std::string line = fmt::format("{} ({} s)", what_, seconds);
      fmt::print(stderr, "\r{:{}}", line, width);
      std::fflush(stderr);
      width = std::max(width, line.size());
    }
    if (width > 0) fmt::print(stderr, "\r{:{}}\r", "", width);
    std::fflush(stderr);
  }
}

}  // namespace maco::tools
