// The stamps of a profiled kernel, and their times in nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/abi.h"
#include "runtime/status.h"

namespace maco::runtime {

class Group;

/// The stamps of one rank's launch.
struct RankStamps {
  /// Ranks with the same number share one clock: they are on the same GPU, or on the CPU. Times of
  /// different clocks can't be compared.
  int clock = 0;
  std::vector<CtaStamps> ctas;
  std::vector<TaskStamps> tasks;  // stream after stream
};

/// Gathers the stamps of all ranks of a group, each process giving its own. `clock`: a name that is
/// equal exactly for processes whose stamps use one clock. All processes call it.
Status gather_stamps(Group& group, const std::string& clock, const RankStamps& mine,
                     std::vector<RankStamps>& all);

/// One task on one rank, in nanoseconds: times on the rank's clock, and durations.
struct TaskTimes {
  int64_t begun = 0;      // the wait
  int64_t waited = 0;     // the consumers have everything for which the task waited
  int64_t computed = 0;   // they have done the work,
  int64_t stored = 0;     // have written all results, and signal from here on
  int64_t signalled = 0;  // until here
  // Durations of waits for pages and for packets, within waited..computed.
  int64_t page_wait = 0, packet_wait = 0;
  // The loader's copies for the task were issued between these times, which are equal if there are
  // none. The copies arrive later.
  int64_t fill_begun = 0, filled = 0;
  int64_t fill_wait = 0;  // duration: waiting for free pages meanwhile
  // When the SM goes on: `signalled`, or `stored` if a separate warp signals. Set by a Timeline.
  int64_t left = 0;
  friend bool operator==(const TaskTimes&, const TaskTimes&) = default;
};

/// Times of a rank's tasks, stream after stream. `streams`: how many tasks each CTA has. A CTA's
/// times lie on the line through its two CtaStamps. Fails if a CTA with tasks has no stamps, or if
/// its clock doesn't grow.
Status task_times(const RankStamps& stamps, std::span<const size_t> streams,
                  std::vector<TaskTimes>& out);

}  // namespace maco::runtime
