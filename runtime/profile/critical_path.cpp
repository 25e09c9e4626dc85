#include "runtime/profile/critical_path.h"

#include <algorithm>

namespace maco::runtime {
namespace {

// What `task` needed last, and when that was available.
struct Cause {
  int rank = 0;
  ir::TaskId task{};
  int64_t ready = 0;
};
std::optional<Cause> cause_of(const Timeline& line, int rank, ir::TaskId task) {
  std::optional<Cause> found;
  if (const auto before = line.before(task))
    found = Cause{rank, *before, line.at(rank, *before).left};
  for (const Arrival& a : line.arrivals(rank, task))
    if (!found || a.sent > found->ready) found = Cause{a.rank, a.task, a.sent};
  return found;
}

PathStep step(const Timeline& line, int rank, ir::TaskId task, int64_t begin, int64_t end) {
  PathStep s{rank, task, begin, end, 0, 0, 0};
  const TaskTimes& t = line.at(rank, task);
  const int64_t works = line.runs(rank, task) ? std::clamp(t.waited, begin, end) : end;
  // Waits for packets come first; those of the task from which the path comes are not on the path.
  const int64_t packets = std::clamp<int64_t>(t.packet_wait - (works - t.waited), 0, end - works);
  s.pages = std::min(t.page_wait, end - works - packets);
  s.hand_off = works - begin + packets;
  s.busy = end - works - packets - s.pages;
  return s;
}

}  // namespace

std::vector<PathStep> critical_path(const Timeline& line) {
  int rank = 0;
  ir::TaskId task{};
  for (int r = 0; r < line.world(); ++r)
    for (size_t t = 0; t < line.program().tasks.size(); ++t) {
      const auto id = ir::id_of<ir::TaskId>(t);
      if (line.at(r, id).signalled > line.at(rank, task).signalled) rank = r, task = id;
    }
  std::vector<PathStep> path;
  int64_t end = line.end();
  // No path leads from a task to itself, so that this ends; times may overlap by the clocks' error.
  while (true) {
    const auto cause = cause_of(line, rank, task);
    const int64_t begin = cause ? std::clamp<int64_t>(cause->ready, 0, end) : 0;
    path.push_back(step(line, rank, task, begin, end));
    if (!cause) break;
    rank = cause->rank, task = cause->task, end = begin;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace maco::runtime
