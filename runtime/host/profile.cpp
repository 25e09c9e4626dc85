#include "runtime/host/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace maco::runtime {
namespace {

// A CTA's clock.
class Clock {
 public:
  explicit Clock(const CtaStamps& s)
      : begin_ns_(static_cast<int64_t>(s.begin_ns)),
        begin_clock_(s.begin_clock),
        ns_per_tick_(static_cast<double>(s.end_ns - s.begin_ns) /
                     static_cast<double>(s.end_clock - s.begin_clock)) {}
  // Of a moment, which may lie before the first stamp: loaders begin by themselves.
  int64_t ns_at(u64 clock) const {
    return begin_ns_ + ns(static_cast<double>(static_cast<int64_t>(clock - begin_clock_)));
  }
  int64_t ns(double ticks) const { return std::llround(ticks * ns_per_tick_); }

 private:
  int64_t begin_ns_;
  u64 begin_clock_;
  double ns_per_tick_;
};

TaskTimes times_of(const TaskStamps& s, const Clock& clock) {
  TaskTimes t;
  t.begun = clock.ns_at(s.begun);
  t.waited = clock.ns_at(s.begun + s.waited);
  t.computed = clock.ns_at(s.begun + s.computed);
  t.stored = clock.ns_at(s.begun + s.stored);
  t.signalled = clock.ns_at(s.begun + s.signalled);
  // Sums of rounded numbers may be more than the whole.
  t.page_wait = std::min(clock.ns(s.page_wait), t.computed - t.waited);
  t.packet_wait = std::min(clock.ns(s.packet_wait), t.computed - t.waited - t.page_wait);
  if (s.filled == 0) {
    t.fill_begun = t.filled = t.begun;
    return t;
  }
  t.fill_begun = clock.ns_at(s.fill_begun);
  t.filled = clock.ns_at(s.fill_begun + s.filled);
  t.fill_wait = std::min(clock.ns(s.fill_wait), t.filled - t.fill_begun);
  return t;
}

}  // namespace

Status task_times(const RankStamps& stamps, std::span<const size_t> streams,
                  std::vector<TaskTimes>& out) {
  out.clear();
  for (size_t cta = 0; cta < streams.size(); ++cta) {
    if (streams[cta] == 0) continue;
    const CtaStamps& s = cta < stamps.ctas.size() ? stamps.ctas[cta] : CtaStamps{};
    if (s.end_ns == 0 || out.size() + streams[cta] > stamps.tasks.size())
      return Status::failure(
          fmt::format("CTA {} left no stamps: the kernel was written by an earlier macoc, whose "
                      "code has none, or was edited",
                      cta));
    if (s.end_ns <= s.begin_ns || s.end_clock <= s.begin_clock)
      return Status::failure(fmt::format(
          "the stamps of CTA {} make no sense: its clock went from {} to {} in {} ns", cta,
          s.begin_clock, s.end_clock, static_cast<int64_t>(s.end_ns - s.begin_ns)));
    const Clock clock(s);
    for (size_t i = 0; i < streams[cta]; ++i)
      out.push_back(times_of(stamps.tasks[out.size()], clock));
  }
  return {};
}

}  // namespace maco::runtime
