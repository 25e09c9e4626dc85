// What a profiled kernel stamped, and what that is in nanoseconds.
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
  /// others can't be compared.
  int clock = 0;
  std::vector<CtaStamps> ctas;
  std::vector<TaskStamps> tasks;  // stream after stream
};

/// The stamps of all ranks of a group, from what each of its processes has of its own. `clock`: a
/// name that processes whose stamps are on one clock give, and no others. All call it.
Status gather_stamps(Group& group, const std::string& clock, const RankStamps& mine,
                     std::vector<RankStamps>& all);

/// One task on one rank, in nanoseconds: moments of the rank's clock, and lengths.
struct TaskTimes {
  int64_t begun = 0;      // the wait
  int64_t waited = 0;     // the consumers have all that the task waited for
  int64_t computed = 0;   // they have done the work,
  int64_t stored = 0;     // have written all, and signal from here on
  int64_t signalled = 0;  // until here
  // Lengths, within waited..computed, of waits for pages and for packets.
  int64_t page_wait = 0, packet_wait = 0;
  // The loader's copies for the task were issued between these; equal if it has none. The copies
  // land later.
  int64_t fill_begun = 0, filled = 0;
  int64_t fill_wait = 0;  // length, of that: waiting for free pages
  // The SM goes on: `signalled`, or `stored` where a warp apart signals. A Timeline's.
  int64_t left = 0;
  friend bool operator==(const TaskTimes&, const TaskTimes&) = default;
};

/// Times of a rank's tasks, stream after stream. `streams`: how many tasks each CTA has. Moments of
/// a CTA lie on the line through its two CtaStamps. Fails where a CTA that has tasks has no stamps,
/// or where its clock doesn't grow.
Status task_times(const RankStamps& stamps, std::span<const size_t> streams,
                  std::vector<TaskTimes>& out);

}  // namespace maco::runtime
