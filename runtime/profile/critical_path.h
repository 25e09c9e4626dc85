// Which tasks a launch's time is made of.
#pragma once

#include <vector>

#include "runtime/profile/timeline.h"

namespace maco::runtime {

/// A task's part of the path, in nanoseconds. It begins when the last thing that the task needed
/// was there: another task's signal, or the end of the task before it in its stream.
struct PathStep {
  int rank = 0;
  ir::TaskId task{};
  int64_t begin = 0, end = 0;
  // What it is made of.
  int64_t hand_off = 0;  // until the task works, and then for packets
  int64_t busy = 0;
  int64_t pages = 0;  // of the work: waiting for pages
};

/// From the launch's begin to its end, without gaps.
std::vector<PathStep> critical_path(const Timeline& timeline);

}  // namespace maco::runtime
