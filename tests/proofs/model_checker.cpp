#include "tests/proofs/model_checker.h"

#include "tests/proofs/second_opinion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>
#include <vector>

#include "tests/proofs/rank_list.h"
#include "tests/unit/block_heights.h"

namespace maco::proofs {
namespace {

using ir::EventKind;
using ir::Program;
using ir::Task;

bool has(const std::vector<int>& list, int n) {
  return std::find(list.begin(), list.end(), n) != list.end();
}

/// What waits for packets do.
enum class Packets : uint8_t { Block, BlockWhereSure, Pass };

class Explorer {
 public:
  Explorer(const Program& p, int launches, size_t most)
      : p_(p), world_(static_cast<int>(p.world)), launches_(launches), most_(most) {
    for (const auto& stream : ir::streams(p)) {
      if (stream.empty()) continue;
      std::vector<uint32_t>& list = streams_.emplace_back();
      for (ir::TaskId t : stream) list.push_back(static_cast<uint32_t>(index(t)));
    }
    stream_of_.resize(p.tasks.size());
    place_.resize(p.tasks.size());
    for (uint32_t s = 0; s < streams_.size(); ++s)
      for (uint32_t i = 0; i < streams_[s].size(); ++i)
        stream_of_[streams_[s][i]] = s, place_[streams_[s][i]] = i;
  }

  /// By node: the nodes that had not ended in some state in which it started.
  using Early = std::array<uint64_t, 64>;

  /// False if there are too many states.
  bool run(Packets packets, Early& early, bool& hangs) {
    packets_ = packets;
    early = {};
    hangs = false;
    State start(static_cast<size_t>(world_) * (streams_.size() + 1), '\0');
    seen_ = {start};
    std::vector<State> open = {start};
    while (!open.empty()) {
      const State now = open.back();
      open.pop_back();
      bool any = false, over = true;
      const uint64_t unfinished = not_ended(now);
      for (int rank = 0; rank < world_; ++rank)
        for (uint32_t s = 0; s < streams_.size(); ++s) {
          const size_t at = position(rank, s);
          const auto half = static_cast<size_t>(now[at]);
          if (half == 2 * streams_[s].size()) continue;
          over = false;
          const uint32_t task = streams_[s][half / 2];
          if (half % 2 == 0) {
            if (!may_start(now, rank, task)) continue;
            early[node(now[launch_at(rank)], rank, task)] |= unfinished;
          }
          any = true;
          State next = now;
          ++next[at];
          begin_launch(next, rank);
          if (seen_.insert(next).second) open.push_back(std::move(next));
        }
      if (!any && !over) hangs = true;
      if (seen_.size() > most_) return false;
    }
    return true;
  }
  size_t states() const { return seen_.size(); }
  size_t node(int launch, int rank, uint32_t task) const {
    return (static_cast<size_t>(launch) * static_cast<size_t>(world_) + static_cast<size_t>(rank)) *
               p_.tasks.size() +
           task;
  }

 private:
  using State = std::string;  // a rank: its launch, then for each stream twice the tasks that
                              // ended, plus one if one runs

  size_t launch_at(int rank) const { return static_cast<size_t>(rank) * (streams_.size() + 1); }
  size_t position(int rank, uint32_t stream) const { return launch_at(rank) + 1 + stream; }
  bool runs(uint32_t task, int rank) const { return (p_.tasks[task].ranks >> rank) & 1; }

  // A rank's launches follow each other.
  void begin_launch(State& s, int rank) const {
    if (s[launch_at(rank)] + 1 == launches_) return;
    for (uint32_t i = 0; i < streams_.size(); ++i)
      if (static_cast<size_t>(s[position(rank, i)]) != 2 * streams_[i].size()) return;
    ++s[launch_at(rank)];
    for (uint32_t i = 0; i < streams_.size(); ++i) s[position(rank, i)] = 0;
  }
  /// In how many launches has the task ended.
  int64_t ended(const State& s, int rank, uint32_t task) const {
    const bool now = s[position(rank, stream_of_[task])] / 2 > static_cast<int>(place_[task]);
    return s[launch_at(rank)] + (now ? 1 : 0);
  }
  uint64_t not_ended(const State& s) const {
    uint64_t set = 0;
    for (int rank = 0; rank < world_; ++rank)
      for (uint32_t t = 0; t < p_.tasks.size(); ++t)
        for (int launch = static_cast<int>(ended(s, rank, t)); launch < launches_; ++launch)
          set |= uint64_t{1} << node(launch, rank, t);
    return set;
  }

  bool may_start(const State& s, int rank, uint32_t task) const {
    if (!runs(task, rank)) return true;
    for (const ir::Wait& w : p_.tasks[task].waits) {
      const int64_t epoch = s[launch_at(rank)] + 1 - static_cast<int64_t>(w.lag);
      if (epoch <= 0) continue;
      const ir::Event& event = p_[w.event];
      if (event.kind == EventKind::Local) {
        int64_t arrived = 0;
        for (uint32_t t = 0; t < p_.tasks.size(); ++t)
          for (const ir::Signal& signal : p_.tasks[t].signals)
            if (signal.event == w.event) arrived += ended(s, rank, t);
        if (arrived < epoch * event.count) return false;
        continue;
      }
      if (event.kind == EventKind::Packet &&
          (packets_ == Packets::Pass || (packets_ == Packets::BlockWhereSure && !surely(task))))
        continue;
      for (int source : ranks_of(w.from, rank, world_)) {
        int64_t word = 0;
        for (uint32_t t = 0; t < p_.tasks.size(); ++t)
          for (const ir::Signal& signal : p_.tasks[t].signals)
            if (signal.event == w.event && runs(t, source) &&
                has(ranks_of(signal.to, source, world_), rank))
              word = std::max(word, ended(s, source, t));
        if (word < epoch) return false;
      }
    }
    return true;
  }
  bool surely(uint32_t task) const { return surely_polls(p_, p_.tasks[task]); }

  const Program& p_;
  const int world_, launches_;
  const size_t most_;
  Packets packets_ = Packets::Block;
  std::vector<std::vector<uint32_t>> streams_;
  std::vector<uint32_t> stream_of_, place_;
  std::unordered_set<State> seen_;
};

/// The bytes that an access may have, one by one.
std::vector<std::string> bytes(const Program& p, const ir::Access& a, int runner, int launch) {
  const ir::Region& r = a.region;
  const ir::Buffer& b = p[r.buffer];
  const int64_t size = size_of(b.dtype);
  const ir::Interval shift = shift_of(p, r, runner);
  const bool slot = b.kind == ir::BufferKind::Slot;
  std::string space = slot ? "slots" : b.kind == ir::BufferKind::Temp ? "arena" : b.name;
  int64_t base = b.offset.value_or(0);
  if (slot) base += launch % b.rotation * b.copy_bytes();
  std::vector<int> memories =
      slot ? ranks_of(r.where, runner, static_cast<int>(p.world)) : std::vector<int>{runner};
  std::set<int64_t> list;
  for (int64_t row = r.r0 + shift.lo; row < r.r1 + shift.hi; ++row)
    for (int64_t byte = r.c0 * size; byte < r.c1 * size; ++byte) {
      // A packet: four bytes of data, four of flag.
      const int64_t row_packets = (b.cols * size + 3) / 4;
      if (b.packets)
        for (int64_t k = 0; k < 8; ++k) list.insert(base + (row * row_packets + byte / 4) * 8 + k);
      else
        list.insert(base + row * r.pitch * size + byte);
    }
  std::vector<std::string> result;
  for (int memory : memories)
    for (int64_t byte : list) result.push_back(fmt::format("{}/{}/{}", memory, space, byte));
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

std::optional<Exploration> explore(const Program& p, int launches, size_t most) {
  Exploration result;
  Explorer explorer(p, launches, most);
  const bool packets = std::any_of(p.events.begin(), p.events.end(),
                                   [](const ir::Event& e) { return e.kind == EventKind::Packet; });
  Explorer::Early over, seen;
  bool hangs = false, ignored = false;
  if (!explorer.run(Packets::Block, over, hangs)) return std::nullopt;
  result.states += static_cast<int64_t>(explorer.states());
  if (hangs) {
    result.verdict = "deadlock";
    return result;
  }
  seen = over;
  if (packets) {
    if (!explorer.run(Packets::BlockWhereSure, over, ignored)) return std::nullopt;
    result.states += static_cast<int64_t>(explorer.states());
    if (!explorer.run(Packets::Pass, seen, ignored)) return std::nullopt;
    result.states += static_cast<int64_t>(explorer.states());
  }

  struct Touch {
    size_t node;
    int launch, rank;
    uint32_t task;
    const ir::Access* access;
    std::vector<std::string> bytes;
  };
  std::vector<Touch> touches;
  for (int launch = 0; launch < launches; ++launch)
    for (int rank = 0; rank < p.world; ++rank)
      for (uint32_t t = 0; t < p.tasks.size(); ++t) {
        if (!((p.tasks[t].ranks >> rank) & 1)) continue;
        for (const ir::Access& a : p.tasks[t].accesses)
          touches.push_back(
              {explorer.node(launch, rank, t), launch, rank, t, &a, bytes(p, a, rank, launch)});
      }
  // Packets that y polls and x writes.
  const auto carries = [&](const Touch& x, const Touch& y) {
    const ir::BufferId b = x.access->region.buffer, other = y.access->region.buffer;
    if (!x.access->writes() || y.access->writes() || !p[b].packets || !p[other].packets)
      return false;
    // Other flags in the same place: what y polls for is written after x.
    if (b != other)
      return p[b].use != p[other].use && std::pair(x.launch, x.task) < std::pair(y.launch, y.task);
    for (const ir::Wait& w : p.tasks[y.task].waits) {
      if (p[w.event].kind != EventKind::Packet || x.launch + static_cast<int>(w.lag) > y.launch ||
          !has(ranks_of(w.from, y.rank, static_cast<int>(p.world)), x.rank))
        continue;
      for (const ir::Signal& s : p.tasks[x.task].signals)
        if (s.event == w.event && has(ranks_of(s.to, x.rank, static_cast<int>(p.world)), y.rank))
          return true;
    }
    return false;
  };
  // Whether y starts only when x is over, and, if x writes, sees it.
  const auto follows = [&](const Touch& x, const Touch& y) {
    const Explorer::Early& early = x.access->writes() ? seen : over;
    return !(early[y.node] >> x.node & 1) || carries(x, y);
  };
  const auto text = [&](const Touch& x) {
    return fmt::format("{} (rank {}, launch {})", describe(p, ir::id_of<ir::TaskId>(x.task)),
                       x.rank, x.launch);
  };
  for (size_t i = 0; i < touches.size(); ++i)
    for (size_t j = i + 1; j < touches.size(); ++j) {
      const Touch &a = touches[i], &b = touches[j];
      if (a.node == b.node || (!a.access->writes() && !b.access->writes())) continue;
      std::vector<std::string> common;
      std::set_intersection(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end(),
                            std::back_inserter(common));
      if (common.empty() ||
          !test::meet_at_some_height(p, a.access->region, a.rank, b.access->region, b.rank))
        continue;
      // The list of tasks says which comes first; of one task on two ranks either may.
      const auto place = [](const Touch& x) { return std::pair(x.launch, x.task); };
      const bool ab = place(a) <= place(b) && follows(a, b),
                 ba = place(b) <= place(a) && follows(b, a);
      if (ab || ba) continue;
      result.verdict = "race";
      result.what = fmt::format("{} and {} at {}", text(a), text(b), common[0]);
      return result;
    }
  // What comes after something else without sharing data.
  for (int rank = 0; rank < p.world; ++rank)
    for (uint32_t y = 0; y < p.tasks.size(); ++y)
      for (uint32_t x = 0; x < p.tasks.size(); ++x) {
        const auto& after = p.tasks[y].after;
        if (std::find(after.begin(), after.end(), p.tasks[x].call) == after.end() ||
            !((p.tasks[x].ranks & p.tasks[y].ranks) >> rank & 1))
          continue;
        if (over[explorer.node(0, rank, y)] >> explorer.node(0, rank, x) & 1) {
          result.verdict = "race";
          result.what = fmt::format("{} may start before {}", describe(p, ir::id_of<ir::TaskId>(y)),
                                    describe(p, ir::id_of<ir::TaskId>(x)));
          return result;
        }
      }
  return result;
}

}  // namespace maco::proofs
