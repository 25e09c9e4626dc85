// The tasks that determine a launch's time.
#pragma once

#include <vector>

#include "runtime/profile/timeline.h"

namespace maco::runtime {

/// A task's part of the path, in nanoseconds. It begins when the last thing that the task needed
/// was available: another task's signal, or the end of the task before it in its stream.
struct PathStep {
  int rank = 0;
  ir::TaskId task{};
  int64_t begin = 0, end = 0;
  // The parts of the step's time.
  int64_t hand_off = 0;  // until the task works, and later for packets
  int64_t busy = 0;
  int64_t pages = 0;  // part of the work: waiting for pages
};

/// The path from the launch's start to its end, without gaps.
std::vector<PathStep> critical_path(const Timeline& timeline);

}  // namespace maco::runtime
