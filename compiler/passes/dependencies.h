// What each task of a Program has to wait for on its rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/program.h"

namespace maco::passes {

struct Dependencies {
  /// Sets of tasks of one call, each ascending and kept once.
  std::vector<std::vector<ir::TaskId>> sets;
  /// The sets that must have ended on a task's rank before it starts, latest first. Every earlier
  /// task of the Program with which the task conflicts is in one of these sets, or has ended
  /// because of the sets of other tasks.
  std::span<const uint32_t> of(ir::TaskId task) const {
    const size_t t = ir::index(task);
    return {on.data() + first[t], first[t + 1] - first[t]};
  }
  std::vector<uint32_t> on;
  std::vector<size_t> first;  // by task; and the end
  /// How often what a task touches was looked for among what an earlier call touches.
  int64_t searches = 0;
};

/// If the tasks of more calls than this alternate, the tasks are first sorted by calls. That is
/// faster, and valid if no task then depends on a later one of the Program.
constexpr size_t kMostAmong = 16;

/// Two tasks depend on each other if they touch the same bytes on a rank, one of them writing, also
/// where two temporaries share bytes, or if Task::after says so. The later task in Program order
/// waits. Slots are left out: the collectives' tile rules order what peers write.
Dependencies find_dependencies(const ir::Program& program, size_t most_among = kMostAmong);
/// As find_dependencies, without those on temporaries with packets, whose readers wait for the
/// flags.
Dependencies find_dependencies_of_events(const ir::Program& program);

}  // namespace maco::passes
