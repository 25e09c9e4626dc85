#include "compiler/ops/collectives/chunk_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace maco::ops {

namespace {

/// Runs statements that their author ordered: each thread block runs until it waits for what isn't
/// there. Clocks track what is known to have happened. `seen` counts statements whose writes are
/// visible. `past` counts statements that are only known to be over, as relaxed signals and packets
/// tell. Both are the same in every run, because of the way in which synchronisation is named: one
/// block signals, and one block waits for it.
class ByAuthor {
 public:
  ByAuthor(const ChunkProgram& program, const ir::UserAlgorithm& algorithm, ChunkValues& values,
           ir::Diagnostics& d)
      : p_(program), a_(algorithm), values_(values), d_(d) {}

  bool run(std::optional<ChunkFault>* fault) {
    if (!make_threads() || !check_ends()) return false;
    find_packets();
    if (!timing_ && !timed_before_) time_releases();
    bool ok = true;
    for (bool moved = true; moved && ok;) {
      moved = false;
      for (uint32_t t = 0; t < threads_.size() && ok; ++t)
        while (ok && threads_[t].next < threads_[t].actions.size() && can_run(t)) {
          ok = perform(t);
          moved = true;
        }
    }
    if (timing_) return true;
    if (ok) ok = all_done() && ends_in_time() && leaves_nothing();
    if (!ok && fault && fault_) *fault = std::move(fault_);
    return ok;
  }
  std::vector<ChunkFault::At> whole_run() const { return run_of(clock_of_all()); }

 private:
  using Clock = std::vector<uint32_t>;  // by thread: how many of its statements have been done
  struct Thread {
    int rank = 0;
    int64_t block = 0;
    std::vector<uint32_t> actions;
    size_t next = 0;
    Clock seen, past;
  };
  // Signals from one rank to another, by tag and unit; or a rank's semaphore.
  struct Channel {
    std::vector<std::unique_ptr<std::pair<Clock, Clock>>> signals;  // seen (empty: relaxed), past
    std::map<uint32_t, std::vector<uint32_t>> by;  // by thread: which of these are its own
    int64_t waits = 0;
    int64_t first = 0;  // a semaphore's first value
    int64_t all_signals = 0, all_waits = 0;
    uint32_t waiter = kNoChunkValue, signaller = kNoChunkValue;
    std::map<uint32_t, int64_t> signals_of;  // by thread: all that it makes
  };
  struct Meeting {  // the n-th of a barrier
    std::vector<uint32_t> threads;
    std::vector<uint32_t> here;
    bool open = false;
  };
  struct Access {
    uint32_t thread = kNoChunkValue, time = 0;
  };
  struct Cell {
    Access write;
    std::vector<Access> reads;
    bool packets = false;
    std::unique_ptr<Clock> sent;  // packets: the past of their sender
  };

  bool make_threads() {
    std::map<std::pair<int, int64_t>, uint32_t> found;
    const auto thread = [&](int rank, int64_t block) -> Thread& {
      const auto [it, fresh] =
          found.try_emplace({rank, block}, static_cast<uint32_t>(threads_.size()));
      if (fresh) {
        threads_.emplace_back();
        threads_.back().rank = rank;
        threads_.back().block = block;
      }
      return threads_[it->second];
    };
    const auto whole = [](const ChunkAction& x) {
      return x.kind == ChunkAction::Kind::Barrier && !x.op->block;
    };
    size_t syncs = 0;
    for (const ChunkAction& x : p_.actions) {
      syncs += x.kind > ChunkAction::Kind::Reduce ? 1 : x.packets ? x.to.size() : 0;
      if (!whole(x)) thread(x.rank, x.block);
      for (int64_t b : x.blocks) thread(x.rank, b);
    }
    if (threads_.size() * (syncs + threads_.size()) > kMostClocks) {
      d_.error(a_.loc, fmt::format("collective '{}' has {} thread blocks and {} synchronisations: "
                                   "too many to be checked",
                                   a_.name, threads_.size(), syncs));
      return false;
    }
    for (uint32_t i = 0; i < p_.actions.size(); ++i) {
      const ChunkAction& x = p_.actions[i];
      if (!whole(x)) {
        thread(x.rank, x.block).actions.push_back(i);
      } else {
        for (auto& [key, t] : found)
          if (key.first == x.rank &&
              (x.blocks.empty() ||
               std::binary_search(x.blocks.begin(), x.blocks.end(), key.second)))
            threads_[t].actions.push_back(i);
      }
    }
    for (Thread& t : threads_) t.seen.assign(threads_.size(), 0), t.past = t.seen;
    cells_.resize(static_cast<size_t>(p_.shape.memory() * p_.shape.world));
    return true;
  }

  using Key = std::tuple<int, int, int, int64_t, int64_t>;
  Key key_of(const ChunkAction& x) const {
    using enum ChunkAction::Kind;
    if (x.kind == Acquire || x.kind == Release) return {1, x.rank, 0, x.semaphore, 0};
    return x.kind == Signal ? Key{0, x.rank, x.peer, x.tag, x.unit}
                            : Key{0, x.peer, x.rank, x.tag, x.unit};
  }
  std::string name_of(const ChunkAction& x) const {
    using enum ChunkAction::Kind;
    if (x.kind == Acquire || x.kind == Release)
      return fmt::format("semaphore {} of rank {}", x.semaphore, x.rank);
    const int from = x.kind == Signal ? x.rank : x.peer, to = x.kind == Signal ? x.peer : x.rank;
    return fmt::format("signals from rank {} to rank {} with tag {}{}", from, to, x.tag,
                       x.unit ? fmt::format(" and unit {}", x.unit) : "");
  }

  // Counts who signals and who waits, and how often.
  bool check_ends() {
    using enum ChunkAction::Kind;
    for (uint32_t t = 0; t < threads_.size(); ++t) {
      std::map<std::pair<int, std::vector<int64_t>>, int64_t> met;
      for (uint32_t i : threads_[t].actions) {
        const ChunkAction& x = p_.actions[i];
        if (x.kind == Barrier) {
          const int64_t n = met[{x.rank, x.blocks}]++;
          meetings_[{x.rank, x.blocks, n}].threads.push_back(t);
          continue;
        }
        if (x.kind <= Reduce) continue;
        Channel& c = channels_[key_of(x)];
        const bool signals = x.kind == Signal || x.kind == Release;
        uint32_t& end = signals ? c.signaller : c.waiter;
        const bool one = x.kind != Release;
        if (one && end != kNoChunkValue && end != t) {
          d_.error(x.op->loc,
                   fmt::format("blocks {} and {} of rank {} both {} {}: which of them comes first "
                               "would decide",
                               threads_[end].block, threads_[t].block, threads_[t].rank,
                               signals ? "make the" : "wait for the", name_of(x)));
          return false;
        }
        end = t;
        (signals ? c.all_signals : c.all_waits) += 1;
        if (signals) ++c.signals_of[t];
        if (x.kind == Acquire || x.kind == Release)
          if (static_cast<size_t>(x.semaphore) < p_.semaphores.size())
            c.first = p_.semaphores[static_cast<size_t>(x.semaphore)];
      }
    }
    // A statement that names a barrier's blocks has to name all blocks that meet.
    std::map<int, size_t> of_rank;
    for (const Thread& t : threads_) ++of_rank[t.rank];
    for (auto& [key, meeting] : meetings_) {
      const std::vector<int64_t>& blocks = std::get<1>(key);
      const Thread& t = threads_[meeting.threads[0]];
      const size_t named = blocks.empty() ? of_rank[t.rank] : blocks.size();
      if (named == meeting.threads.size()) continue;
      d_.error(a_.loc, fmt::format("collective '{}': {} of {} blocks come to a barrier of rank {}",
                                   a_.name, meeting.threads.size(), named, t.rank));
      return false;
    }
    return true;
  }

  void find_packets() {
    for (const ChunkAction& x : p_.actions)
      if (x.packets)
        for (const ChunkCell& c : x.to)
          if (p_.shape.is_scratch(c.cell)) cells_[values_.place(c)].packets = true;
  }

  const ChunkAction& next(uint32_t t) const {
    return p_.actions[threads_[t].actions[threads_[t].next]];
  }
  Meeting& meeting(uint32_t t) {
    const ChunkAction& x = next(t);
    auto& counts = met_[t];
    return meetings_[{x.rank, x.blocks, counts[{x.rank, x.blocks}]}];
  }

  bool can_run(uint32_t t) {
    using enum ChunkAction::Kind;
    const ChunkAction& x = next(t);
    switch (x.kind) {
      case Copy:
      case Reduce:
        return std::all_of(x.from.begin(), x.from.end(), [&](const ChunkCell& c) {
          const Cell& cell = cells_[values_.place(c)];
          return !cell.packets || cell.write.thread != kNoChunkValue;
        });
      case Wait: {
        const Channel& c = channels_[key_of(x)];
        return static_cast<int64_t>(c.signals.size()) > c.waits;
      }
      case Acquire: {
        const Channel& c = channels_[key_of(x)];
        return static_cast<int64_t>(c.signals.size()) + c.first > c.waits;
      }
      case Barrier: {
        Meeting& m = meeting(t);
        if (m.open) return true;
        if (std::find(m.here.begin(), m.here.end(), t) == m.here.end()) m.here.push_back(t);
        if (m.here.size() < m.threads.size()) return false;
        m.open = true;
        Clock seen(threads_.size(), 0), past = seen;
        for (uint32_t other : m.threads) {
          join(seen, threads_[other].seen);
          join(past, threads_[other].past);
        }
        for (uint32_t other : m.threads) threads_[other].seen = seen, threads_[other].past = past;
        return true;
      }
      case Signal:
      case Release: break;
    }
    return true;
  }
  static void join(Clock& to, const Clock& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
  }

  bool perform(uint32_t t) {
    using enum ChunkAction::Kind;
    const ChunkAction& x = next(t);
    Thread& me = threads_[t];
    if (x.kind == Barrier) ++met_[t][{x.rank, x.blocks}];
    if (x.kind == Wait || x.kind == Acquire) hear(x, me);
    if (x.kind == Copy || x.kind == Reduce) {
      if (!move(t, x)) return false;
    }
    if (stop_at_.thread == t && stop_at_.time == me.next + 1) {
      stopped_ = me.past;
      return false;
    }
    ++me.next;
    me.seen[t] = me.past[t] = static_cast<uint32_t>(me.next);
    done_.push_back(t);
    if (x.kind == Signal || x.kind == Release) {
      Channel& c = channels_[key_of(x)];
      c.signals.push_back(
          std::make_unique<std::pair<Clock, Clock>>(x.relaxed ? Clock() : me.seen, me.past));
      c.by[t].push_back(static_cast<uint32_t>(c.signals.size() - 1));
      if (timing_ && c.waiter != kNoChunkValue) timed_[key_of(x)][t].push_back(me.past[c.waiter]);
    }
    if (x.kind == Copy || x.kind == Reduce)
      for (const ChunkCell& c : x.to)
        if (Cell& cell = cells_[values_.place(c)]; cell.packets)
          cell.sent = std::make_unique<Clock>(me.past);
    return true;
  }

  // Adds what the n-th wait learns: the n-th signal. If several blocks release a semaphore, it
  // learns of those releases without which there would be too few.
  void hear(const ChunkAction& x, Thread& me) {
    Channel& c = channels_[key_of(x)];
    const int64_t n = ++c.waits;
    const auto join_one = [&](int64_t i) {
      const auto& signal = *c.signals[static_cast<size_t>(i)];
      if (!signal.first.empty() && !x.relaxed) join(me.seen, signal.first);
      join(me.past, signal.second);
    };
    if (x.kind == ChunkAction::Kind::Wait) {
      join_one(n - 1);
      c.signals[static_cast<size_t>(n - 1)]->first = {};  // nobody reads it again
      c.signals[static_cast<size_t>(n - 1)]->second = {};
      return;
    }
    const int64_t need = n - c.first;
    for (const auto& [thread, all] : c.signals_of) {
      // Other threads' releases that may come before this acquire; only releases that come behind
      // it can't.
      const int64_t sure = need - (before_next(x, c, me) - own_before_next(x, thread, all, me));
      const std::vector<uint32_t>& by = c.by[thread];
      if (sure > 0 && sure <= static_cast<int64_t>(by.size()))
        join_one(by[static_cast<size_t>(sure - 1)]);
    }
  }

  int64_t own_before_next(const ChunkAction& x, uint32_t thread, int64_t all,
                          const Thread& me) const {
    const auto channel = known_.find(key_of(x));
    if (channel == known_.end()) return all;
    const auto found = channel->second.find(thread);
    if (found == channel->second.end()) return all;
    const std::vector<uint32_t>& past = found->second;
    // A thread's releases come in order, and so do the statements behind which they come.
    const auto behind = std::upper_bound(past.begin(), past.end(), static_cast<uint32_t>(me.next));
    return behind == past.end() ? all : behind - past.begin();
  }
  int64_t before_next(const ChunkAction& x, const Channel& c, const Thread& me) const {
    int64_t sum = 0;
    for (const auto& [thread, all] : c.signals_of) sum += own_before_next(x, thread, all, me);
    return sum;
  }
  // Where several blocks release a semaphore, finds behind which statements of the acquiring block
  // each release comes. The second pass uses what the first has found, and finds more.
  void time_releases() {
    const bool several = std::any_of(channels_.begin(), channels_.end(),
                                     [](const auto& c) { return c.second.signals_of.size() > 1; });
    for (int pass = 0; several && pass < 2; ++pass) {
      ir::Diagnostics unheard;
      ChunkValues values(p_.shape, false, unheard);
      ByAuthor timing(p_, a_, values, unheard);
      timing.timing_ = true;
      timing.known_ = std::move(known_);
      timing.run(nullptr);
      known_ = std::move(timing.timed_);
    }
  }

  bool move(uint32_t t, const ChunkAction& x) {
    Thread& me = threads_[t];
    if (timing_) return time(t, x);
    const auto time = static_cast<uint32_t>(me.next + 1);
    std::vector<uint32_t> found;
    for (const ChunkCell& c : x.from)
      if (const Cell& cell = cells_[values_.place(c)]; cell.packets && cell.write.thread != t)
        join(me.past, *cell.sent);
    for (const ChunkCell& c : x.from) {
      Cell& cell = cells_[values_.place(c)];
      found.push_back(values_.at(c));
      if (found.back() == kNoChunkValue) {
        d_.error(x.op->loc,
                 fmt::format("rank {} reads {}, which nothing is sure to have written by "
                             "then",
                             x.rank, place_text(p_.shape, c)));
        fault_ = {ChunkFault::Claim::Empty, {at(t, me.next)}, run_of(me.past)};
        return false;
      }
      if (!cell.packets && !before(cell.write, me.seen))
        return race(t, cell.write, c, "writes", "reads");
      cell.reads.push_back({t, time});
    }
    for (const ChunkCell& c : x.to) {
      Cell& cell = cells_[values_.place(c)];
      if (cell.packets && !x.packets) {
        d_.error(
            x.op->loc,
            fmt::format("rank {} writes {} without packets, but other writes to it use packets",
                        x.rank, place_text(p_.shape, c)));
        return false;
      }
      if (cell.packets && cell.write.thread != kNoChunkValue) {
        d_.error(x.op->loc, fmt::format("{} gets packets twice: those of one launch look alike",
                                        place_text(p_.shape, c)));
        return false;
      }
      if (!before(cell.write, me.seen)) return race(t, cell.write, c, "writes", "writes");
      for (const Access& read : cell.reads)
        if (!before(read, me.past) && !(read.thread == t))
          return race(t, read, c, "reads", "writes");
      cell.write = {t, time};
      cell.reads.clear();
    }
    const auto made = values_.make(x, found);
    if (!made) return false;
    values_.write(x, found, *made);
    return true;
  }
  // As move, without looking at chunks, except for packets, for which blocks wait.
  bool time(uint32_t t, const ChunkAction& x) {
    for (const ChunkCell& c : x.from)
      if (const Cell& cell = cells_[values_.place(c)]; cell.packets && cell.write.thread != t)
        join(threads_[t].past, *cell.sent);
    for (const ChunkCell& c : x.to)
      cells_[values_.place(c)].write = {t, static_cast<uint32_t>(threads_[t].next + 1)};
    return true;
  }
  static bool before(const Access& a, const Clock& clock) {
    return a.thread == kNoChunkValue || a.time <= clock[a.thread];
  }

  ChunkFault::At at(uint32_t thread, size_t step) const {
    return {threads_[thread].rank, threads_[thread].block, static_cast<int64_t>(step)};
  }
  Clock clock_of_all() const {
    Clock all;
    for (const Thread& t : threads_) all.push_back(static_cast<uint32_t>(t.next));
    return all;
  }
  // The statements that were done, without those that aren't before `clock`.
  std::vector<ChunkFault::At> run_of(const Clock& clock) const {
    std::vector<ChunkFault::At> run;
    std::vector<uint32_t> count(threads_.size(), 0);
    for (uint32_t t : done_) {
      const uint32_t step = count[t]++;
      if (step < clock[t]) run.push_back(at(t, step));
    }
    return run;
  }
  // All statements that have to come before a statement that was done.
  Clock past_of(uint32_t thread, uint32_t time) const {
    ir::Diagnostics unheard;
    ChunkValues values(p_.shape, false, unheard);
    ByAuthor again(p_, a_, values, unheard);
    again.known_ = known_;
    again.timed_before_ = true;
    again.stop_at_ = {thread, time};
    again.run(nullptr);
    return again.stopped_;
  }

  bool race(uint32_t t, const Access& first, ChunkCell c, const char* first_does,
            const char* second_does) {
    const ChunkAction& x = next(t);
    const Thread& other = threads_[first.thread];
    const ChunkAction& y = p_.actions[other.actions[first.time - 1]];
    const bool over = first.time <= threads_[t].past[first.thread];
    d_.error(x.op->loc, fmt::format("block {} of rank {} {} {}, which block {} of rank {} {}: {}",
                                    threads_[t].block, threads_[t].rank, second_does,
                                    place_text(p_.shape, c), other.block, other.rank, first_does,
                                    over ? "it comes first, but nothing makes it visible"
                                         : "nothing orders them"));
    d_.note(y.op->loc, "the other is here");
    Clock clock = threads_[t].past;
    if (!over) {
      Clock before_first = past_of(first.thread, first.time);
      before_first[first.thread] = first.time - 1;
      join(clock, before_first);
      clock[first.thread] = std::min(clock[first.thread], first.time - 1);
    }
    fault_ = {over ? ChunkFault::Claim::Unseen : ChunkFault::Claim::Race,
              {at(first.thread, first.time - 1), at(t, threads_[t].next)},
              run_of(clock)};
    return false;
  }

  std::string waits_for(uint32_t t) {
    using enum ChunkAction::Kind;
    const ChunkAction& x = next(t);
    switch (x.kind) {
      case Wait: {
        const Channel& c = channels_[key_of(x)];
        return fmt::format("number {} of the {}, of which there are {}", c.waits + 1, name_of(x),
                           c.all_signals);
      }
      case Acquire: return name_of(x);
      case Barrier: return fmt::format("a barrier of rank {}", x.rank);
      default: break;
    }
    for (const ChunkCell& c : x.from)
      if (const Cell& cell = cells_[values_.place(c)];
          cell.packets && cell.write.thread == kNoChunkValue)
        return fmt::format("packets in {}", place_text(p_.shape, c));
    return "nothing";
  }
  bool all_done() {
    std::vector<uint32_t> stuck;
    for (uint32_t t = 0; t < threads_.size(); ++t)
      if (threads_[t].next < threads_[t].actions.size()) stuck.push_back(t);
    if (stuck.empty()) return true;
    d_.error(next(stuck[0]).op->loc,
             fmt::format("collective '{}' comes to a deadlock: {} thread block{} without end",
                         a_.name, stuck.size(), stuck.size() == 1 ? " waits" : "s wait"));
    constexpr size_t kShown = 8;
    ChunkFault fault{ChunkFault::Claim::Deadlock, {}, run_of(clock_of_all())};
    for (size_t i = 0; i < stuck.size(); ++i) {
      const Thread& t = threads_[stuck[i]];
      fault.about.push_back(at(stuck[i], t.next));
      if (i < kShown)
        d_.note(next(stuck[i]).op->loc, fmt::format("block {} of rank {} waits for {}", t.block,
                                                    t.rank, waits_for(stuck[i])));
    }
    fault_ = std::move(fault);
    return false;
  }

  // Checks that what others write to a rank's output is there when the rank ends.
  bool ends_in_time() {
    for (int r = 0; r < p_.shape.world; ++r) {
      Clock seen(threads_.size(), 0), past = seen;
      for (const Thread& t : threads_)
        if (t.rank == r) join(seen, t.seen), join(past, t.past);
      for (int64_t i = 0; i < p_.shape.out_chunks; ++i) {
        const ChunkCell c{r, p_.shape.output_cell(r, i)};
        const Access& write = cells_[values_.place(c)].write;
        if (write.thread == kNoChunkValue || threads_[write.thread].rank == r ||
            before(write, seen))
          continue;
        const Thread& other = threads_[write.thread];
        const bool over = before(write, past);
        d_.error(p_.actions[other.actions[write.time - 1]].op->loc,
                 fmt::format(
                     "rank {0} may end before block {1} of rank {2} {3} {4}: no wait of rank "
                     "{0} tells it of that",
                     r, other.block, other.rank,
                     over ? "makes visible what it writes to" : "writes", place_text(p_.shape, c)));
        fault_ = {over ? ChunkFault::Claim::Unseen : ChunkFault::Claim::Late,
                  {at(write.thread, write.time - 1)},
                  run_of(past)};
        return false;
      }
    }
    return true;
  }

  // Checks that the next launch finds semaphores as this one did.
  bool leaves_nothing() {
    using enum ChunkAction::Kind;
    for (const ChunkAction& x : p_.actions) {
      if (x.kind <= Reduce || x.kind == Barrier) continue;
      const Channel& c = channels_[key_of(x)];
      if (c.all_signals == c.all_waits) continue;
      d_.error(x.op->loc,
               fmt::format(
                   "collective '{}' {} {} {} times and {} {} times: the next launch "
                   "would find what is left",
                   a_.name, x.kind == Release ? "releases" : "makes the", name_of(x), c.all_signals,
                   x.kind == Release || x.kind == Acquire ? "acquires it" : "waits for them",
                   c.all_waits));
      return false;
    }
    return true;
  }

  static constexpr size_t kMostClocks = size_t{1} << 27;

  const ChunkProgram& p_;
  const ir::UserAlgorithm& a_;
  ChunkValues& values_;
  ir::Diagnostics& d_;
  std::vector<Thread> threads_;
  std::map<Key, Channel> channels_;
  std::map<std::tuple<int, std::vector<int64_t>, int64_t>, Meeting> meetings_;
  std::map<uint32_t, std::map<std::pair<int, std::vector<int64_t>>, int64_t>> met_;  // by thread
  std::vector<Cell> cells_;
  std::vector<uint32_t> done_;  // threads, statement by statement
  std::optional<ChunkFault> fault_;
  // For each semaphore and each block that releases it: how many statements of the acquiring block
  // come before each release.
  using Releases = std::map<Key, std::map<uint32_t, std::vector<uint32_t>>>;
  Releases known_, timed_;
  bool timing_ = false, timed_before_ = false;
  Access stop_at_;  // where past_of stops
  Clock stopped_;
};

}  // namespace

bool run_as_ordered(const ChunkProgram& program, const ir::UserAlgorithm& algorithm,
                    ChunkValues& values, ir::Diagnostics& diagnostics,
                    std::optional<ChunkFault>* fault, std::vector<ChunkFault::At>& run) {
  ByAuthor author(program, algorithm, values, diagnostics);
  if (!author.run(fault)) return false;
  if (fault) run = author.whole_run();
  return true;
}

}  // namespace maco::ops
