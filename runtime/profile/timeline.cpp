// timeline.cpp: times of different GPUs can't be compared, but a signal can't be seen before it is
// sent. Each hand-off between two ranks bounds the difference of their clocks from one side. If
// there are hand-offs both ways, the difference lies between the closest two bounds, and the middle
// is taken.
#include "runtime/profile/timeline.h"

#include <algorithm>
#include <limits>

namespace maco::runtime {
namespace {

// A packet is sent and seen somewhere within the tasks that write and read it, the last one at
// their ends.
int64_t sent_at(const TaskTimes& t, ir::EventKind kind) {
  return ir::is_about_packets(kind) ? t.computed : t.stored;
}
int64_t seen_at(const TaskTimes& t, ir::EventKind kind) {
  return ir::is_about_packets(kind) ? t.computed : t.waited;
}

// Whether `reader` reads, or may read, what `writer` writes to a rank's own buffers.
bool reads_of(const ir::Task& reader, const ir::Task& writer) {
  const auto share_rows = [](const ir::Region& w, const ir::Region& r) {
    return w.from != r.from || (w.r0 < r.r1 && r.r0 < w.r1);
  };
  for (const ir::Access& w : writer.accesses)
    for (const ir::Access& r : reader.accesses)
      if (w.writes() && !r.writes() && w.region.buffer == r.region.buffer &&
          share_rows(w.region, r.region) && w.region.c0 < r.region.c1 && r.region.c0 < w.region.c1)
        return true;
  return false;
}

}  // namespace

int64_t region_bytes(const ir::Program& p, const ir::Region& r, int rank) {
  const auto ranks = [&](ir::RankRef ref) {
    return static_cast<int64_t>(ir::resolve(ref, rank, static_cast<int>(p.world)).size());
  };
  const int64_t blocks = r.block.any() ? ranks(r.block.ref) : 1;
  return (r.r1 - r.r0) * (r.c1 - r.c0) * blocks * ranks(r.where) * ir::size_of(p[r.buffer].dtype);
}

std::optional<Timeline> Timeline::make(const ir::Program& program,
                                       const std::vector<RankStamps>& stamps, Status& status) {
  Timeline line;
  line.program_ = &program;
  line.streams_ = ir::streams(program);
  if (stamps.size() != static_cast<size_t>(program.world) || program.tasks.empty()) {
    status = Status::failure("the Program has no tasks, or the stamps are of other ranks");
    return std::nullopt;
  }
  std::vector<size_t> sizes;
  for (const auto& stream : line.streams_) sizes.push_back(stream.size());
  for (const RankStamps& rank : stamps) {
    std::vector<TaskTimes> in_streams;
    if (status = task_times(rank, sizes, in_streams); !status) return std::nullopt;
    auto& times = line.times_.emplace_back(program.tasks.size());
    size_t at = 0;
    for (const auto& stream : line.streams_)
      for (ir::TaskId task : stream) {
        TaskTimes& t = times[ir::index(task)] = in_streams[at++];
        t.left = program.uses.signallers > 0 ? t.stored : t.signalled;
      }
  }
  line.senders_.resize(program.events.size());
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Signal& signal : program.tasks[t].signals)
      line.senders_[ir::index(signal.event)].push_back({ir::id_of<ir::TaskId>(t), signal.to});
  line.align(stamps);

  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  for (const auto& times : line.times_)
    for (const TaskTimes& t : times) {
      first = std::min({first, t.begun, t.fill_begun});
      last = std::max(last, t.signalled);
    }
  for (int rank = 0; rank < line.world(); ++rank) line.shift(rank, -first);
  line.end_ = last - first;
  for (int rank = 0; rank < line.world(); ++rank) {
    auto& local = line.local_.emplace_back(program.events.size());
    for (size_t e = 0; e < program.events.size(); ++e)
      if (program.events[e].kind == ir::EventKind::Local)
        local[e] = line.last(ir::id_of<ir::EventId>(e), rank, rank);
  }
  return line;
}

void Timeline::shift(int rank, int64_t by) {
  for (TaskTimes& t : times_[static_cast<size_t>(rank)])
    for (int64_t* moment : {&t.begun, &t.waited, &t.computed, &t.stored, &t.signalled, &t.left,
                            &t.fill_begun, &t.filled})
      *moment += by;
}

bool Timeline::sends(const Sender& sender, ir::EventKind kind, int source, int rank) const {
  if (is_counter(kind)) return source == rank;
  if (!runs(source, sender.task)) return false;
  return ir::resolve(sender.to, source, world()).contains(rank);
}

std::optional<Arrival> Timeline::last(ir::EventId event, int source, int rank) const {
  const ir::EventKind kind = (*program_)[event].kind;
  std::optional<Arrival> found;
  for (const Sender& sender : senders_[ir::index(event)]) {
    if (!sends(sender, kind, source, rank)) continue;
    const int64_t sent = sent_at(at(source, sender.task), kind);
    if (!found || sent > found->sent) found = Arrival{event, source, sender.task, sent, 0};
  }
  return found;
}

std::vector<Arrival> Timeline::arrivals(int rank, ir::TaskId task) const {
  std::vector<Arrival> list;
  if (!runs(rank, task)) return list;
  for (const ir::Wait& wait : (*program_)[task].waits) {
    if (wait.lag != 0) continue;
    const ir::EventKind kind = (*program_)[wait.event].kind;
    std::optional<Arrival> found;
    if (kind == ir::EventKind::Hint) {
      // The task polls for what it reads: other tasks that signal the hint may be later than the
      // task.
      for (const Sender& sender : senders_[ir::index(wait.event)]) {
        if (!runs(rank, sender.task)) continue;
        const int64_t sent = sent_at(at(rank, sender.task), kind);
        if ((!found || sent > found->sent) && reads_of((*program_)[task], (*program_)[sender.task]))
          found = Arrival{wait.event, rank, sender.task, sent, 0};
      }
    } else if (is_counter(kind)) {
      found = local_[static_cast<size_t>(rank)][ir::index(wait.event)];
    } else {
      for (int source : ir::resolve(wait.from, rank, world())) {
        const auto one = last(wait.event, source, rank);
        if (one && (!found || one->sent > found->sent)) found = one;
      }
    }
    if (!found) continue;
    found->seen = seen_at(at(rank, task), kind);
    list.push_back(*found);
  }
  return list;
}

std::optional<ir::TaskId> Timeline::before(ir::TaskId task) const {
  const ir::Task& t = (*program_)[task];
  if (t.place == 0) return std::nullopt;
  return streams_[static_cast<size_t>(t.sm)][static_cast<size_t>(t.place - 1)];
}

std::vector<std::vector<std::optional<int64_t>>> Timeline::bounds() const {
  const auto world_size = static_cast<size_t>(world());
  std::vector<std::vector<std::optional<int64_t>>> least(
      world_size, std::vector<std::optional<int64_t>>(world_size));
  for (size_t t = 0; t < program_->tasks.size(); ++t) {
    const auto task = ir::id_of<ir::TaskId>(t);
    for (const ir::Wait& wait : (*program_)[task].waits) {
      const ir::EventKind kind = (*program_)[wait.event].kind;
      if (wait.lag != 0 || is_counter(kind)) continue;
      for (int rank = 0; rank < world(); ++rank) {
        if (!runs(rank, task)) continue;
        for (int source : ir::resolve(wait.from, rank, world())) {
          const auto sent = last(wait.event, source, rank);
          if (!sent) continue;
          auto& bound = least[static_cast<size_t>(source)][static_cast<size_t>(rank)];
          const int64_t by = sent->sent - seen_at(at(rank, task), kind);
          bound = std::max(bound.value_or(by), by);
        }
      }
    }
  }
  return least;
}

void Timeline::align(const std::vector<RankStamps>& stamps) {
  const size_t ranks = stamps.size();
  std::vector<bool> aligned(ranks);
  const auto clock = [&](size_t rank) { return stamps[rank].clock; };
  for (size_t r = 0; r < ranks; ++r) aligned[r] = clock(r) == clock(0);
  if (std::all_of(aligned.begin(), aligned.end(), [](bool a) { return a; })) return;
  clocks_ = Clocks::Signals;
  const auto least = bounds();
  std::vector<int64_t> added(ranks);
  const auto begin_of = [&](size_t rank) {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const TaskTimes& t : times_[rank]) first = std::min(first, t.begun);
    return first;
  };
  // Aligns one clock after another, each time the one that is best bounded by those aligned so far.
  while (true) {
    struct Choice {
      size_t rank = 0;
      std::optional<int64_t> low, high;
      int sides() const { return low.has_value() + high.has_value(); }
    };
    std::optional<Choice> best;
    for (size_t r = 0; r < ranks; ++r) {
      if (aligned[r]) continue;
      Choice c{r, {}, {}};
      for (size_t other = 0; other < ranks; ++other)
        for (size_t same = 0; same < ranks; ++same) {
          if (!aligned[other] || clock(same) != clock(r)) continue;
          if (const auto& up = least[other][same])
            c.low = std::max(c.low.value_or(added[other] + *up), added[other] + *up);
          if (const auto& down = least[same][other])
            c.high = std::min(c.high.value_or(added[other] - *down), added[other] - *down);
        }
      const bool closer = best && c.sides() == 2 && best->sides() == 2 &&
                          std::abs(*c.high - *c.low) < std::abs(*best->high - *best->low);
      if (!best || c.sides() > best->sides() || closer) best = c;
    }
    if (!best) break;
    int64_t by = begin_of(0) - begin_of(best->rank);
    if (best->sides() == 2) {
      by = *best->low + (*best->high - *best->low) / 2;
      clock_error_ = std::max(clock_error_, (std::abs(*best->high - *best->low) + 1) / 2);
    } else {
      if (best->low) by = std::max(by, *best->low);
      if (best->high) by = std::min(by, *best->high);
      clocks_ = std::max(clocks_, best->sides() == 1 ? Clocks::Bounded : Clocks::Unknown);
    }
    for (size_t r = 0; r < ranks; ++r) {
      if (clock(r) != clock(best->rank)) continue;
      aligned[r] = true;
      added[r] = by;
      shift(static_cast<int>(r), by);
    }
  }
}

}  // namespace maco::runtime
