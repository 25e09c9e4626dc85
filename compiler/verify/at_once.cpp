// The short proof that there are no races. It differs from races.cpp, which says what is wrong, in
// three ways.
//   - A task is looked at once for all ranks that run it: boxes are mostly the same on all, and
//     what a rank knows of itself mostly follows from its streams and Local events, which are the
//     same too (own_clocks.h).
//   - One launch is looked at. Slots, which are all that launches of several ranks share, are
//     compared with what the launch before left behind (slots.h, launches.h).
//   - Past accesses are kept by call, and looked at one by one only if something of the call isn't
//     over yet (private_past.h).
// It doesn't know all that orders two tasks: of waits for earlier launches only what they say of
// the tasks that they wait for, and of what a rank hears of itself from its peers nothing by
// packets. It looks at what peers say, which costs more, only as far as the rest isn't enough.
#include "compiler/verify/at_once.h"

#include <algorithm>
#include <climits>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "compiler/verify/own_clocks.h"
#include "compiler/verify/private_past.h"
#include "compiler/verify/ranks.h"
#include "compiler/verify/regions.h"
#include "compiler/verify/slots.h"

namespace maco::verify {
namespace {

// What ranks know of each other grows with their number squared, and so does the time that it
// takes.
constexpr size_t kMostPeerWords = 4096;  // of a clock

class AtOnce {
 public:
  AtOnce(const Model& model, const std::vector<uint32_t>& order, const VerifyOptions& options,
         VerifyStatistics& statistics)
      : m_(model),
        p_(model.program),
        order_(order),
        statistics_(statistics),
        layout_(p_),
        period_(options.forget_every > 0 ? options.forget_every
                                         : std::max<size_t>(256, 4 * model.streams.size())) {}

  bool run() {
    if (!barriers() || !slots_are_ordered(m_, layout_, order_, own_, far_, statistics_.pairs))
      return false;
    find_last_tasks();
    for (uint32_t i = 0; i < own_.size(); ++i) own_needs_.emplace_back(own_[i].second, i);
    for (uint32_t i = 0; i < far_.size(); ++i) {
      far_needs_.emplace_back(far_[i].second, i);
      if (far_[i].said_by != ~0u) sayings_.emplace_back(far_[i].said_by, i);
    }
    for (auto* list : {&own_needs_, &far_needs_, &sayings_}) std::sort(list->begin(), list->end());
    if (follow(Heard::Nothing)) return true;
    const size_t by_events = OwnClocks::peer_words(m_, Heard::Events);
    if (by_events > 0 && follow(Heard::Echoes)) return true;
    if (by_events > 0 && by_events <= kMostPeerWords && follow(Heard::Events)) return true;
    if (far_.empty()) return false;
    const size_t words = OwnClocks::peer_words(m_, Heard::Packets);
    return words > by_events && words <= kMostPeerWords && follow(Heard::Packets);
  }

 private:
  bool follow(Heard heard) {
    said_.assign(far_.size(), false);
    std::vector<OwnClocks::HeardOfItself> heard_of_themselves;
    if (!orders_hold(heard, heard_of_themselves)) return false;
    PrivatePast past(m_, layout_);
    OwnClocks clocks(m_, heard_of_themselves);
    std::vector<bool> visited(m_.tasks(), false);
    uint32_t next_in_list = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < order_.size(); ++i) {
      const uint32_t t = order_[i];
      clocks.start(t);
      ok = past.visit(t, clocks, statistics_.pairs);
      clocks.end(t);
      visited[t] = true;
      while (next_in_list < m_.tasks() && visited[next_in_list]) ++next_in_list;
      if ((i + 1) % period_ == 0) past.forget(floor((i + 1) / period_ - 1), next_in_list);
    }
    statistics_.joins += clocks.joins();
    statistics_.nodes = static_cast<int64_t>(order_.size()) * m_.followed;
    return ok;
  }

  // --- orders that tasks need ---

  using Needs = std::vector<std::pair<uint32_t, uint32_t>>;  // by task: the number of an order
  template <class Each>
  static bool each_need(const Needs& needs, uint32_t task, const Each& each) {
    for (auto at = std::lower_bound(needs.begin(), needs.end(), std::pair(task, 0u));
         at != needs.end() && at->first == task; ++at)
      if (!each(at->second)) return false;
    return true;
  }
  bool ended(const OwnClocks& clocks, uint32_t task, uint64_t ranks) const {
    for (const OwnClocks::View& view : clocks.views())
      if ((view.ranks & ranks) != 0 &&
          !clocks.ended(view, m_.stream_of[task], p_.tasks[task].place))
        return false;
    return true;
  }
  /// Whether the task has ended before the one that was started last, which has to run on `rank`.
  bool ended_on(const OwnClocks& clocks, uint32_t task, int rank) const {
    const uint64_t bit = uint64_t{1} << (m_.symmetric ? 0 : rank);
    for (const OwnClocks::View& view : clocks.views())
      if ((view.ranks & bit) != 0)
        return clocks.ended(view, m_.stream_of[task], p_.tasks[task].place);
    return false;
  }
  bool meets_needs(uint32_t t, const OwnClocks& clocks) {
    if (!own_needs_.empty() && !each_need(own_needs_, t, [&](uint32_t i) {
          return ended_on(clocks, own_[i].first, own_[i].rank);
        }))
      return false;
    if (far_.empty()) return true;
    each_need(sayings_, t, [&](uint32_t i) {
      said_[i] = ended_on(clocks, far_[i].first, far_[i].first_rank);
      return true;
    });
    return each_need(far_needs_, t, [&](uint32_t i) {
      const FarOrder& o = far_[i];
      return said_[i] || (o.heard_by != ~0u && ended_on(clocks, o.heard_by, o.second_rank)) ||
             clocks.heard_of(o.plane, o.second_rank, o.first, o.first_rank);
    });
  }

  // --- what comes `after` something without sharing data ---

  struct Last {
    uint32_t task;
    uint64_t ranks;
  };
  /// Finds the last task in each stream among those of a call that run on the same ranks.
  void find_last_tasks() {
    std::vector<bool> wanted(p_.calls.size(), false);
    for (const ir::Task& t : p_.tasks)
      for (ir::CallId c : t.after) wanted[index(c)] = true;
    last_.resize(p_.calls.size());
    for (auto stream = m_.streams.begin(); stream != m_.streams.end(); ++stream) {
      // Goes backwards, so that the first task of a call that it meets is the call's last.
      for (size_t i = stream->size(); i-- > 0;) {
        const uint32_t t = (*stream)[i];
        const ir::Task& task = p_.tasks[t];
        if (!wanted[index(task.call)]) continue;
        std::vector<Last>& last = last_[index(task.call)];
        bool later = false;
        for (size_t k = last.size(); k-- > 0 && !later;) {
          if (m_.stream_of[last[k].task] != m_.stream_of[t]) break;
          later = last[k].ranks == task.ranks;
        }
        if (!later) last.push_back({t, task.ranks});
      }
    }
  }
  bool comes_after(uint32_t t, const OwnClocks& clocks) const {
    for (ir::CallId c : p_.tasks[t].after)
      for (const Last& before : last_[index(c)])
        if (!ended(clocks, before.task, before.ranks)) return false;
    return true;
  }

  /// The last task of a barrier on any rank comes after its first on every other; its own rank's
  /// tasks are in `after`.
  bool barriers() {
    std::unordered_map<std::string_view, std::pair<uint32_t, uint32_t>> tasks;  // first, last
    for (const ir::Collective& c : p_.collectives)
      if (c.kind == ir::CollectiveKind::Barrier) tasks[c.op] = {~0u, ~0u};
    if (tasks.empty()) return true;
    for (uint32_t t = 0; t < m_.tasks(); ++t)
      if (const auto at = tasks.find(p_[p_.tasks[t].call].op); at != tasks.end()) {
        if (at->second.first == ~0u) at->second.first = t;
        at->second.second = t;
      }
    for (const ir::Collective& c : p_.collectives) {
      if (c.kind != ir::CollectiveKind::Barrier) continue;
      const auto [first, last] = tasks[c.op];
      if (first == ~0u) return false;
      for (int rank = 0; rank < m_.followed; ++rank)
        for (int other = 0; m_.runs(last, rank) && other < m_.world; ++other)
          if (other != rank && !(m_.runs(first, other) && passes(first, other, last, rank)))
            return false;
    }
    return true;
  }
  /// Whether `last` on `rank` waits for a signal that `first` on `other` or a later task there
  /// sends.
  bool passes(uint32_t first, int other, uint32_t last, int rank) {
    for (const ir::Wait& w : p_.tasks[last].waits) {
      const ir::EventKind kind = m_.event(w.event).kind;
      if (w.lag > 0 || is_counter(kind) || !names(w.from, rank, other, m_.world) ||
          (kind == ir::EventKind::Packet && !m_.surely_polls(last)))
        continue;
      const uint32_t sender = m_.signaller(w.event, other, rank);
      if (sender != first) own_.push_back({first, sender, m_.symmetric ? 0 : other});
      return true;
    }
    return false;
  }

  // --- the clocks of all tasks, once; what every task to come is ordered after ---

  // Found beforehand, since a stream may have heard nothing of the others until its next task
  // starts.
  const int32_t* floor(size_t number) const { return floors_.data() + number * m_.streams.size(); }
  bool touches_private(uint32_t t) const {
    for (const ir::Access& a : p_.tasks[t].accesses)
      if (p_[a.region.buffer].kind != ir::BufferKind::Slot) return true;
    return false;
  }
  /// Whether all orders that tasks need hold. Sets the floors, and what ranks hear of themselves,
  /// which is all that private memory needs to know of peers.
  bool orders_hold(Heard heard, std::vector<OwnClocks::HeardOfItself>& heard_of_themselves) {
    const size_t streams = m_.streams.size();
    const auto followed = static_cast<size_t>(m_.followed);
    floors_.assign(order_.size() / period_ * streams, INT32_MAX);
    // By stream and rank: the first floor that no task there has lowered. A rank that leaves a task
    // out waits for nothing there: its next task may know less.
    std::vector<size_t> next(streams * followed, 0);
    OwnClocks clocks(m_, heard);
    bool hold = true;
    for (size_t i = 0; hold && i < order_.size(); ++i) {
      const uint32_t t = order_[i], own = m_.stream_of[t];
      clocks.start(t);
      hold = meets_needs(t, clocks) && comes_after(t, clocks);
      if (touches_private(t) && !floors_.empty()) {
        const size_t past = i / period_;  // floor k is for what comes after (k + 1) * period_ tasks
        for (const OwnClocks::View& view : clocks.views()) {
          size_t first = past;
          for (size_t r = 0; r < followed; ++r) {
            if (!((view.ranks >> r) & 1)) continue;
            first = std::min(first, next[own * followed + r]);
            next[own * followed + r] = past;
          }
          for (size_t k = first; k < past; ++k)
            for (size_t s = 0; s < streams; ++s) {
              int32_t& floor = floors_[k * streams + s];
              floor = std::min(floor, s == own ? clocks.place() : view.ended[s]);
            }
        }
      }
      clocks.end(t);
    }
    statistics_.joins += clocks.joins();
    heard_of_themselves = clocks.heard_of_themselves();
    return hold;
  }

  const Model& m_;
  const ir::Program& p_;
  const std::vector<uint32_t>& order_;
  VerifyStatistics& statistics_;
  const Layout layout_;
  const size_t period_;  // tasks between two floors
  std::vector<OwnOrder> own_;
  std::vector<FarOrder> far_;
  Needs own_needs_, far_needs_, sayings_;  // by `second` of own_ and far_, and by far_'s `said_by`
  std::vector<bool> said_;                 // of far_: `first` came before `said_by`
  std::vector<std::vector<Last>> last_;    // by call, of those that another comes after
  std::vector<int32_t> floors_;            // by floor and stream
};

}  // namespace

bool proved_at_once(const Model& model, const std::vector<uint32_t>& order,
                    const VerifyOptions& options, VerifyStatistics& statistics) {
  return AtOnce(model, order, options, statistics).run();
}

}  // namespace maco::verify
