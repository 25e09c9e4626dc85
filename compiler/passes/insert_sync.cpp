// insert_sync.cpp: events for every dependency on a rank.
//
// Two tasks that touch the same bytes, one of them writing, run in Program order: reads after
// writes, writes after reads and after writes, box by box, also where two temporaries share bytes.
// What stream order gives needs no event. The rest is grouped: tasks of one call whose dependents
// in another call are the same share one event that counts them, so that a row of tiles feeding one
// reduction is one wait. Waits across ranks are there already: the collectives' tile rules know
// them.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "compiler/passes/passes.h"
#include "ir/check.h"

namespace maco::passes {

namespace {

using ir::Access;
using ir::BufferId;
using ir::CallId;
using ir::TaskId;

// One earlier access that later ones may conflict with. Bytes are from the start of the buffer.
struct Entry {
  TaskId task;
  bool writes;
  int64_t pitch, r0, r1, c0, c1;  // bytes; rows of `pitch` bytes, those of all ranks
  const ir::Region* region;
  int64_t begin, end;  // linear bounds
  uint64_t ranks;
};

void place_rows(Entry& e, int64_t r0, int64_t r1) {
  e.r0 = r0;
  e.r1 = r1;
  e.begin = e.r0 * e.pitch + e.c0;
  e.end = e.r1 > e.r0 ? (e.r1 - 1) * e.pitch + e.c1 : e.begin;
}

// The box on one rank.
Entry on_rank(const ir::Program& p, Entry e, int rank) {
  const ir::Interval shift = ir::shift_of(p, *e.region, rank);
  place_rows(e, e.region->r0 + shift.lo, e.region->r1 + shift.hi);
  return e;
}

Entry entry_of(const ir::Program& p, TaskId id, const Access& a) {
  const ir::Region& r = a.region;
  const int64_t size = ir::size_of(p[r.buffer].dtype);
  Entry e;
  e.task = id;
  e.writes = a.writes();
  e.ranks = p[id].ranks;
  e.region = &r;
  e.pitch = r.pitch * size;
  e.c0 = r.c0 * size;
  e.c1 = r.c1 * size;
  e = on_rank(p, e, 0);
  for (int rank = 1; r.block.moves() && rank < p.world; ++rank) {
    const Entry there = on_rank(p, e, rank);
    place_rows(e, std::min(e.r0, there.r0), std::max(e.r1, there.r1));
  }
  return e;
}

bool overlap(const Entry& a, const Entry& b, int64_t shift) {
  if (a.end <= b.begin + shift || b.end + shift <= a.begin) return false;
  if (shift == 0 && a.pitch == b.pitch)
    return a.r0 < b.r1 && b.r0 < a.r1 && a.c0 < b.c1 && b.c0 < a.c1;
  return true;
}

// They touch the same bytes on a rank that runs both.
bool meet(const ir::Program& p, const Entry& a, const Entry& b, int64_t shift) {
  if (!overlap(a, b, shift)) return false;
  if (!a.region->block.moves() && !b.region->block.moves()) return true;
  for (int rank = 0; rank < p.world; ++rank)
    if ((a.ranks & b.ranks) >> rank & 1 && overlap(on_rank(p, a, rank), on_rank(p, b, rank), shift))
      return true;
  return false;
}

// Every byte that `b` touches, `a` touches too (same buffer).
bool covers(const Entry& a, const Entry& b, const ir::Region& region) {
  if (region.block.any()) return false;
  if (a.pitch == b.pitch) return a.r0 <= b.r0 && b.r1 <= a.r1 && a.c0 <= b.c0 && b.c1 <= a.c1;
  return a.c0 == 0 && a.c1 == a.pitch && a.begin <= b.begin && b.end <= a.end;
}

// The earlier accesses of a buffer. Each is kept by the power of two that its bytes fit into, and
// by where they begin in units of that, so that what may overlap some bytes is found without a look
// at the rest.
class History {
 public:
  bool empty() const { return size_ == 0; }
  void add(const Entry& e) {
    const size_t level =
        static_cast<size_t>(std::bit_width(static_cast<uint64_t>(e.end - e.begin)));
    if (levels_.size() <= level) levels_.resize(level + 1);
    levels_[level][e.begin >> level].push_back(e);
    ++size_;
  }
  // Calls `visit` for all that touch bytes [begin, end), and for some that don't.
  template <class Visit>
  void near(int64_t begin, int64_t end, const Visit& visit) const {
    for (size_t level = 0; level < levels_.size(); ++level) {
      const auto& buckets = levels_[level];
      for (auto at = buckets.lower_bound((begin >> level) - 1);
           at != buckets.end() && at->first <= end >> level; ++at)
        for (const Entry& e : at->second) visit(e);
    }
  }
  // Of those that touch bytes [begin, end), and some that don't.
  template <class Unwanted>
  void erase_near(int64_t begin, int64_t end, const Unwanted& unwanted) {
    for (size_t level = 0; level < levels_.size(); ++level) {
      auto& buckets = levels_[level];
      for (auto at = buckets.lower_bound((begin >> level) - 1);
           at != buckets.end() && at->first <= end >> level;) {
        size_ -= std::erase_if(at->second, unwanted);
        at = at->second.empty() ? buckets.erase(at) : std::next(at);
      }
    }
  }

 private:
  std::vector<std::map<int64_t, std::vector<Entry>>> levels_;
  size_t size_ = 0;
};

class Inserter {
 public:
  explicit Inserter(ir::Program& p)
      : p_(p),
        history_(p.buffers.size()),
        written_(p.buffers.size(), 0),
        seen_(p.tasks.size(), SIZE_MAX) {}

  void run() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) visit(ir::id_of<TaskId>(t));
    make_events();
  }
  int64_t edges() const { return edges_; }

 private:
  struct Bytes {
    int64_t begin = 0, end = 0;
  };
  // Of a temporary, in the arena.
  Bytes bytes_of(size_t b) const {
    return {*p_.buffers[b].offset, *p_.buffers[b].offset + p_.buffers[b].bytes()};
  }
  bool in_arena(size_t b) const {
    return p_.buffers[b].kind == ir::BufferKind::Temp && p_.buffers[b].offset.has_value();
  }

  // Counts what is written of a temporary; when all of it is, on all ranks, nobody need look any
  // more at what its bytes held before: whoever touches one of them later is ordered after the task
  // that wrote it here, which is ordered after what was there.
  void note_written(size_t buffer, const Access& a, uint64_t ranks) {
    const ir::Region& r = a.region;
    const int64_t area = (r.r1 - r.r0) * (r.c1 - r.c0) * std::popcount(ranks & world_mask());
    const int64_t all = p_.buffers[buffer].max_elements() * p_.world;
    const bool before = written_[buffer] >= all;
    written_[buffer] += area;
    if (before || written_[buffer] < all) return;
    const Bytes mine = bytes_of(buffer);
    for (size_t other : open_) {
      if (other == buffer) continue;
      const Bytes theirs = bytes_of(other);
      if (theirs.end <= mine.begin || mine.end <= theirs.begin) continue;
      history_[other].erase_near(
          mine.begin - theirs.begin, mine.end - theirs.begin, [&](const Entry& e) {
            return theirs.begin + e.begin >= mine.begin && theirs.begin + e.end <= mine.end;
          });
    }
    std::erase_if(open_, [&](size_t other) { return history_[other].empty(); });
  }

  void depend(TaskId on, TaskId task) {
    const ir::Task& a = p_[on];
    const ir::Task& b = p_[task];
    if (on == task || seen_[index(on)] == index(task)) return;
    seen_[index(on)] = index(task);
    if ((a.ranks & b.ranks & world_mask()) == 0) return;
    edges_++;
    pairs_[{a.call, b.call}].emplace_back(on, task);
  }
  uint64_t world_mask() const {
    return p_.world >= 64 ? ~uint64_t{0} : (uint64_t{1} << p_.world) - 1;
  }

  void visit(TaskId id) {
    const ir::Task& task = p_[id];
    for (const Access& a : task.accesses) {
      if (p_[a.region.buffer].kind == ir::BufferKind::Slot) continue;
      const Entry e = entry_of(p_, id, a);
      history_[index(a.region.buffer)].near(e.begin, e.end, [&](const Entry& old) {
        if ((old.writes || e.writes) && meet(p_, old, e, 0)) depend(old.task, id);
      });
      if (!in_arena(index(a.region.buffer))) continue;
      const Bytes mine = bytes_of(index(a.region.buffer));
      for (size_t other : open_) {
        if (other == index(a.region.buffer)) continue;
        const Bytes theirs = bytes_of(other);
        if (theirs.end <= mine.begin || mine.end <= theirs.begin) continue;
        const int64_t shift = mine.begin - theirs.begin;
        history_[other].near(e.begin + shift, e.end + shift, [&](const Entry& old) {
          if ((old.writes || e.writes) && meet(p_, old, e, shift)) depend(old.task, id);
        });
      }
    }
    for (CallId c : task.after)
      for (TaskId before : tasks_of(c)) depend(before, id);
    // What this task overwrites entirely nobody need look at again: whoever touches it is ordered
    // after this task.
    for (const Access& a : task.accesses) {
      if (p_[a.region.buffer].kind == ir::BufferKind::Slot) continue;
      auto& list = history_[index(a.region.buffer)];
      const Entry e = entry_of(p_, id, a);
      if (a.writes())
        list.erase_near(e.begin, e.end, [&](const Entry& old) {
          return old.task != id && (old.ranks & ~e.ranks & world_mask()) == 0 &&
                 covers(e, old, a.region);
        });
      if (list.empty() && in_arena(index(a.region.buffer)) &&
          std::find(open_.begin(), open_.end(), index(a.region.buffer)) == open_.end())
        open_.push_back(index(a.region.buffer));
      list.add(e);
      // Not what a task may write: such boxes overlap, and a sum of them says nothing.
      if (a.kind == ir::AccessKind::Write && in_arena(index(a.region.buffer)))
        note_written(index(a.region.buffer), a, task.ranks);
    }
  }

  const std::vector<TaskId>& tasks_of(CallId call) {
    if (by_call_.empty()) {
      by_call_.resize(p_.calls.size());
      for (size_t t = 0; t < p_.tasks.size(); ++t)
        by_call_[index(p_.tasks[t].call)].push_back(ir::id_of<TaskId>(t));
    }
    return by_call_[index(call)];
  }

  // What reports call an event: the op and the tiles whose ends it counts, "h tile 3", "h tiles
  // 0..7"; where the op has several calls, which one too, "y combine tile 3". No two events have
  // the same name: the calls' labels differ, and sets of tiles that are spelt alike are numbered.
  std::string name_of(const std::vector<TaskId>& producers) {
    if (labels_.empty()) label_calls();
    std::vector<uint32_t> tiles;
    for (TaskId t : producers) tiles.push_back(p_[t].tile);
    std::sort(tiles.begin(), tiles.end());
    const size_t all = tiles.size();
    const uint32_t step = all > 1 ? tiles[1] - tiles[0] : 1;
    std::string spelt = all == 1 ? fmt::format("tile {}", tiles[0])
                                 : fmt::format("tiles {}..{}", tiles.front(), tiles.back());
    const auto other_step = [&](uint32_t a, uint32_t b) { return b - a != step; };
    if (std::adjacent_find(tiles.begin(), tiles.end(), other_step) != tiles.end())
      spelt += fmt::format(", {} of them", all);
    else if (step != 1)
      spelt += fmt::format(" by {}", step);
    std::string name = labels_[index(p_[producers[0]].call)] + " " + spelt;
    if (const int before = spelt_[name]++; before > 0) name += fmt::format(" ({})", before + 1);
    return name;
  }
  void label_calls() {
    std::map<std::string, int> calls_of, uses_of;  // by op; by op and function
    const auto use = [](const ir::Call& c) { return c.op + " " + c.function; };
    for (const ir::Call& c : p_.calls) calls_of[c.op]++, uses_of[use(c)]++;
    std::map<std::string, int> part;
    for (const ir::Call& c : p_.calls) {
      ++part[c.op];
      labels_.push_back(calls_of[c.op] == 1    ? c.op
                        : uses_of[use(c)] == 1 ? use(c)
                                               : fmt::format("{} part {}", c.op, part[c.op]));
    }
  }

  ir::EventId event_of(const std::vector<TaskId>& producers) {
    auto [it, fresh] = events_.try_emplace(producers, ir::EventId{});
    if (fresh) {
      p_.events.push_back(
          {name_of(producers), ir::EventKind::Local, static_cast<uint32_t>(producers.size())});
      it->second = ir::id_of<ir::EventId>(p_.events.size() - 1);
      for (TaskId t : producers) p_[t].signals.push_back({it->second, ir::RankRef::self()});
    }
    return it->second;
  }

  void make_events() {
    for (auto& [calls, edges] : pairs_) {
      // The dependents of each producer; equal lists share an event.
      std::map<TaskId, std::vector<TaskId>> dependents;
      for (const auto& [on, task] : edges) dependents[on].push_back(task);
      std::map<std::vector<TaskId>, std::vector<TaskId>> groups;
      for (auto& [on, tasks] : dependents) groups[tasks].push_back(on);
      // producers, consumers
      std::vector<std::pair<std::vector<TaskId>, std::vector<TaskId>>> ordered;
      for (auto& [tasks, producers] : groups) ordered.emplace_back(producers, tasks);
      std::sort(ordered.begin(), ordered.end());
      for (const auto& [producers, tasks] : ordered) {
        std::vector<TaskId> waiting;  // those that stream order alone doesn't serve
        for (TaskId t : tasks)
          if (!std::all_of(producers.begin(), producers.end(), [&](TaskId q) {
                return p_[q].sm == p_[t].sm && p_[q].place < p_[t].place;
              }))
            waiting.push_back(t);
        if (waiting.empty()) continue;
        const ir::EventId e = event_of(producers);
        for (TaskId t : waiting) p_[t].waits.push_back({e, ir::RankRef::self(), 0});
      }
    }
  }

  ir::Program& p_;
  std::vector<History> history_;  // by buffer
  std::vector<size_t> open_;      // temporaries with a history
  std::vector<int64_t> written_;  // of each temporary: elements times ranks
  std::vector<size_t> seen_;  // per producer: the last task that an edge from it was considered for
  std::map<std::pair<CallId, CallId>, std::vector<std::pair<TaskId, TaskId>>> pairs_;
  std::vector<std::vector<TaskId>> by_call_;
  std::map<std::vector<TaskId>, ir::EventId> events_;
  std::vector<std::string> labels_;   // by call
  std::map<std::string, int> spelt_;  // how many events were named so
  int64_t edges_ = 0;
};

}  // namespace

bool insert_sync(ir::Program& program, Context& context) {
  Inserter inserter(program);
  inserter.run();
  int64_t waits = 0;
  for (const ir::Task& t : program.tasks) waits += static_cast<int64_t>(t.waits.size());
  program.stage = ir::Stage::Synced;
  context.statistics["dependencies"] = inserter.edges();
  context.statistics["waits inserted"] = waits;
  return true;
}

}  // namespace maco::passes
