#include "runtime/host/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "runtime/host/group.h"

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
  // The time of a moment, which may lie before the first stamp: loaders begin by themselves.
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
  // Sums of rounded numbers may exceed the whole.
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

// A vector as its length and its bytes.
template <class T>
void put(std::string& text, const std::vector<T>& items) {
  static_assert(std::is_trivially_copyable_v<T>);
  const uint64_t count = items.size();
  text.append(reinterpret_cast<const char*>(&count), sizeof count);
  if (count > 0) text.append(reinterpret_cast<const char*>(items.data()), count * sizeof(T));
}
// Returns false if the text is too short.
template <class T>
bool take(std::string_view& text, std::vector<T>& items) {
  uint64_t count = 0;
  if (text.size() < sizeof count) return false;
  std::memcpy(&count, text.data(), sizeof count);
  text.remove_prefix(sizeof count);
  if (count > text.size() / sizeof(T)) return false;
  items.resize(count);
  if (count > 0) std::memcpy(items.data(), text.data(), count * sizeof(T));
  text.remove_prefix(count * sizeof(T));
  return true;
}

}  // namespace

Status gather_stamps(Group& group, const std::string& clock, const RankStamps& mine,
                     std::vector<RankStamps>& all) {
  std::string text;
  put(text, std::vector<char>(clock.begin(), clock.end()));
  put(text, mine.ctas);
  put(text, mine.tasks);
  // In pieces, since messages are small: each exchange carries those of all ranks.
  constexpr size_t kAtOnce = size_t{32} << 20;
  const size_t piece = kAtOnce / static_cast<size_t>(group.size());
  std::vector<std::string> lengths, texts(static_cast<size_t>(group.size())), pieces;
  MACO_TRY(group.exchange(std::to_string(text.size()), lengths));
  size_t longest = 0;
  for (const std::string& length : lengths)
    longest = std::max(longest, static_cast<size_t>(std::strtoull(length.c_str(), nullptr, 10)));
  for (size_t at = 0; at < longest; at += piece) {
    MACO_TRY(group.exchange(at < text.size() ? text.substr(at, piece) : "", pieces));
    for (size_t r = 0; r < texts.size(); ++r) texts[r] += pieces[r];
  }
  all.assign(texts.size(), {});
  std::vector<std::vector<char>> clocks(texts.size());
  for (size_t r = 0; r < texts.size(); ++r) {
    std::string_view rest = texts[r];
    if (!take(rest, clocks[r]) || !take(rest, all[r].ctas) || !take(rest, all[r].tasks))
      return Status::failure(fmt::format("rank {} has no stamps", r));
    all[r].clock =
        static_cast<int>(std::find(clocks.begin(), clocks.end(), clocks[r]) - clocks.begin());
  }
  return {};
}

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
