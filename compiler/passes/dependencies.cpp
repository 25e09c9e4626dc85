// Dependencies are found call by call. The places where the tasks of a call touch a buffer are one
// Footprint. A task depends on a range of cells of each earlier footprint that shares bytes with
// its own; tasks with the same range share one set. Calls whose tasks alternate in the Program, as
// those of a collective do, are compared task by task. If many calls alternate, as in a pipeline,
// the tasks are first sorted call by call; where that order isn't valid, they are compared task by
// task.

#include "compiler/passes/dependencies.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "compiler/passes/footprint.h"
#include "compiler/passes/live_bytes.h"
#include "ir/ranks.h"

namespace maco::passes {

namespace {

using ir::CallId;
using ir::TaskId;

// Sets with the same tasks have the same number.
class Sets {
 public:
  explicit Sets(std::vector<std::vector<TaskId>>& sets) : sets_(sets) {}

  uint32_t number(std::vector<TaskId> tasks) {
    uint64_t hash = tasks.size();
    for (TaskId t : tasks) hash = (hash ^ index(t)) * 0x9E3779B97F4A7C15u;
    const auto [begin, end] = by_hash_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (sets_[it->second] == tasks) return it->second;
    sets_.push_back(std::move(tasks));
    const auto id = static_cast<uint32_t>(sets_.size() - 1);
    by_hash_.emplace(hash, id);
    return id;
  }
  uint32_t united(uint32_t a, uint32_t b) {
    const auto [it, fresh] = united_.try_emplace({a, b}, 0);
    if (fresh) {
      std::vector<TaskId> both;
      std::set_union(sets_[a].begin(), sets_[a].end(), sets_[b].begin(), sets_[b].end(),
                     std::back_inserter(both));
      it->second = number(std::move(both));
    }
    return it->second;
  }
  const std::vector<TaskId>& operator[](uint32_t id) const { return sets_[id]; }

 private:
  std::vector<std::vector<TaskId>>& sets_;
  std::unordered_multimap<uint64_t, uint32_t> by_hash_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> united_;
};

void sort_latest_first(const std::vector<std::vector<TaskId>>& sets,
                       std::vector<uint32_t>::iterator begin, std::vector<uint32_t>::iterator end) {
  std::sort(begin, end, [&](uint32_t a, uint32_t b) {
    return std::tuple(sets[a].back(), sets[a].size(), a) >
           std::tuple(sets[b].back(), sets[b].size(), b);
  });
}

// Larger sets of one call are waited for one by one.
constexpr size_t kMostUnited = 4096;

class Finder {
 public:
  Finder(const ir::Program& p, bool of_events)
      : p_(p),
        of_events_(of_events),
        all_(ir::all_ranks(p.world)),
        sets_(found_.sets),
        calls_(p.calls.size()) {}

  Dependencies run() {
    list_tasks();
    place_buffers();
    for (size_t first = 0; first < order_.size();) {
      const size_t end = end_of_block(first);
      block(first, end);
      first = end;
    }
    found_.first.push_back(found_.on.size());
    return std::move(found_);
  }

 private:
  struct CallTasks {
    std::vector<TaskId> tasks;
    bool partial = false;                // whether some tasks don't run on all ranks
    std::map<uint64_t, uint32_t> whole;  // by ranks: the set of the tasks that run on one of them
    TaskId first() const { return tasks.front(); }
    TaskId last() const { return tasks.back(); }
  };
  // A footprint, and the sets of its tasks that were asked for.
  struct Touched {
    Touched(CallId c, Footprint f) : call(c), where(std::move(f)) {}
    CallId call;
    Footprint where;
    std::map<std::pair<Footprint::Range, uint64_t>, uint32_t> sets;  // by cells and ranks
  };
  // An earlier footprint that shares bytes with one of the block's.
  struct Earlier {
    uint32_t touched;
    uint32_t unit = 1;  // cells are asked for in multiples of this number
    size_t budget;      // tasks that further sets may have until `unit` doubles
  };
  struct Before {
    std::vector<Earlier> ended;  // whose calls' last tasks come before this call's first
    std::vector<uint32_t> amid;
  };
  // The set of a call's tasks that a task needs.
  struct Part {
    CallId call{};
    uint32_t set = 0;
    friend auto operator<=>(const Part&, const Part&) = default;
  };

  void list_tasks() {
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      CallTasks& call = calls_[index(p_.tasks[t].call)];
      if (call.tasks.empty()) order_.push_back(p_.tasks[t].call);
      call.tasks.push_back(ir::id_of<TaskId>(t));
      call.partial = call.partial || ranks(ir::id_of<TaskId>(t)) != all_;
    }
  }

  // Temporaries are placed in the arena, and each other buffer at addresses of its own behind it.
  void place_buffers() {
    written_.assign(p_.buffers.size(), false);
    for (const ir::Task& t : p_.tasks)
      for (const ir::Access& a : t.accesses)
        if (a.writes()) written_[index(a.region.buffer)] = true;
    int64_t end = 0;
    for (size_t b = 0; b < p_.buffers.size(); ++b)
      if (in_arena(b)) end = std::max(end, *p_.buffers[b].offset + p_.buffers[b].bytes());
    for (size_t b = 0; b < p_.buffers.size(); ++b) {
      addresses_.push_back(in_arena(b) ? *p_.buffers[b].offset : end);
      if (!in_arena(b)) end += p_.buffers[b].bytes();
    }
  }
  bool in_arena(size_t b) const {
    return p_.buffers[b].kind == ir::BufferKind::Temp && p_.buffers[b].offset.has_value();
  }
  uint64_t ranks(TaskId t) const { return p_[t].ranks & all_; }

  // A block is a range of calls, in the order of their first tasks: calls whose tasks alternate,
  // and the calls of one op. A block's tasks follow one another in the Program.
  size_t end_of_block(size_t begin) const {
    TaskId last = calls_[index(order_[begin])].last();
    size_t end = begin + 1;
    while (end < order_.size() && (calls_[index(order_[end])].first() < last ||
                                   p_[order_[end]].op == p_[order_[end - 1]].op)) {
      last = std::max(last, calls_[index(order_[end])].last());
      ++end;
    }
    return end;
  }

  void block(size_t first_call, size_t end_call) {
    const auto first = static_cast<uint32_t>(touched_.size());
    for (size_t c = first_call; c < end_call; ++c) touch(order_[c]);
    std::vector<Before> before;
    for (size_t f = first; f < touched_.size(); ++f) before.push_back(before_of(f, first));
    for (size_t f = first; f < touched_.size(); ++f) {
      const Footprint& where = touched_[f]->where;
      live_.add(static_cast<uint32_t>(f), where.writes(), where.begin(), where.end());
    }
    size_t tasks = 0;
    for (size_t c = first_call; c < end_call; ++c) tasks += calls_[index(order_[c])].tasks.size();
    parts_.resize(std::max(parts_.size(), tasks));
    for (size_t t = first_task_; t < first_task_ + tasks; ++t) add_after(ir::id_of<TaskId>(t));
    for (size_t f = first; f < touched_.size(); ++f) add_footprint(f, before[f - first]);
    for (size_t t = 0; t < tasks; ++t) {
      found_.first.push_back(found_.on.size());
      add_sets(parts_[t]);
      parts_[t].clear();
    }
    first_task_ += tasks;
    forget(first);
  }

  // Makes the footprints of a call.
  void touch(CallId call) {
    struct Accesses {
      ir::BufferId buffer{};
      ir::AccessKind kind{};
      int64_t pitch = 0;
      std::vector<Footprint::Member> members;
    };
    std::vector<Accesses> all;
    for (TaskId t : calls_[index(call)].tasks)
      for (const ir::Access& a : p_[t].accesses) {
        const ir::BufferId buffer = a.region.buffer;
        if (p_[buffer].kind == ir::BufferKind::Slot) continue;
        if (of_events_ && p_[buffer].own_packets()) continue;
        if (!in_arena(index(buffer)) && !written_[index(buffer)]) continue;
        const Box box = box_of(p_, a.region);
        if (box.empty()) continue;
        auto at = std::find_if(all.begin(), all.end(), [&](const Accesses& same) {
          return same.buffer == buffer && same.kind == a.kind && same.pitch == box.pitch;
        });
        if (at == all.end()) at = all.insert(at, {buffer, a.kind, box.pitch, {}});
        at->members.push_back({box, t});
      }
    for (Accesses& a : all)
      touched_.push_back(std::make_unique<Touched>(
          call,
          Footprint(p_, a.buffer, a.kind, addresses_[index(a.buffer)], std::move(a.members))));
  }

  Before before_of(size_t f, size_t first_of_block) const {
    const Touched& mine = *touched_[f];
    Before before;
    const auto ended = [&](uint32_t other) {
      const size_t tasks =
          calls_[index(mine.call)].tasks.size() + calls_[index(touched_[other]->call)].tasks.size();
      before.ended.push_back({other, 1, 16 * tasks + 1024});
    };
    for (uint32_t other : live_.between(mine.where.begin(), mine.where.end(), mine.where.writes()))
      ended(other);
    for (size_t o = first_of_block; o < touched_.size(); ++o) {
      const Touched& other = *touched_[o];
      if (!mine.where.writes() && !other.where.writes()) continue;
      if (other.where.end() <= mine.where.begin() || mine.where.end() <= other.where.begin())
        continue;
      const CallTasks &a = calls_[index(other.call)], &b = calls_[index(mine.call)];
      if (a.last() < b.first())
        ended(static_cast<uint32_t>(o));
      else if (a.first() < b.last())
        before.amid.push_back(static_cast<uint32_t>(o));
    }
    return before;
  }

  void add_after(TaskId t) {
    for (CallId c : p_[t].after) {
      CallTasks& call = calls_[index(c)];
      if (call.tasks.empty()) continue;
      const uint64_t who = call.partial ? ranks(t) : 0;
      if (call.last() < t) {
        const auto [it, fresh] = call.whole.try_emplace(who, 0);
        if (fresh) it->second = set_of(call.tasks, t);
        add_part(t, {c, it->second});
      } else {
        add_part(t, {c, set_of(call.tasks, t)});
      }
    }
  }
  // The set of those `tasks` that run on a rank on which `t` runs, and that come before `t`.
  uint32_t set_of(const std::vector<TaskId>& tasks, TaskId t) {
    std::vector<TaskId> members;
    for (TaskId other : tasks)
      if (other < t && (ranks(other) & ranks(t))) members.push_back(other);
    return sets_.number(std::move(members));
  }

  void add_footprint(size_t f, Before& before) {
    const Touched& mine = *touched_[f];
    std::vector<Part> parts;
    for (size_t k = 0; k < mine.where.classes(); ++k) {
      const Box& box = mine.where.box(k);
      const auto [begin, end] = mine.where.tasks(k);
      uint64_t who = 0;  // the ranks for which `parts` are
      for (const TaskId* t = begin; t != end; ++t) {
        if (ranks(*t) == 0) continue;
        if (who != ranks(*t)) {
          who = ranks(*t);
          parts.clear();
          for (Earlier& e : before.ended)
            if (const auto set = ended_set(mine.where, box, *t, e))
              parts.push_back({touched_[e.touched]->call, *set});
        }
        for (const Part& part : parts) add_part(*t, part);
        found_.searches += static_cast<int64_t>(before.amid.size());
        for (uint32_t other : before.amid)
          if (const auto set = exact_set(mine.where, box, *t, *touched_[other]))
            add_part(*t, {touched_[other]->call, *set});
      }
    }
  }

  // The set that a task that touches `box` needs of a footprint whose tasks all come before it.
  std::optional<uint32_t> ended_set(const Footprint& mine, const Box& box, TaskId t, Earlier& e) {
    Touched& other = *touched_[e.touched];
    ++found_.searches;
    if (box.moves() || other.where.moves() || (box.from >= 0 && other.where.begins_at_value()))
      return exact_set(mine, box, t, other);
    Footprint::Range range = other.where.cells({box, mine.address()});
    if (range.empty()) return std::nullopt;
    if (e.unit > 1) range = other.where.widened(range, e.unit);
    const uint64_t who = calls_[index(other.call)].partial ? ranks(t) : all_;
    const auto [it, fresh] = other.sets.try_emplace({range, who}, 0);
    if (fresh) {
      std::vector<TaskId> members;
      other.where.classes_in(range, [&](uint32_t k) {
        const auto [begin, end] = other.where.tasks(k);
        std::copy_if(begin, end, std::back_inserter(members),
                     [&](TaskId m) { return (ranks(m) & who) != 0; });
      });
      // Ranges that overlap much are widened, so that there are not more entries in the sets than
      // tasks.
      if (members.size() > e.budget) {
        e.unit *= 2;
        e.budget = 16 * (calls_[index(other.call)].tasks.size() + members.size());
      } else {
        e.budget -= members.size();
      }
      it->second = ordered(std::move(members));
    }
    if (sets_[it->second].empty()) return std::nullopt;
    return it->second;
  }

  // The set of a footprint's tasks that come before the task and touch the same bytes on a rank.
  std::optional<uint32_t> exact_set(const Footprint& mine, const Box& box, TaskId t,
                                    const Touched& other) {
    const Footprint::Range range = other.where.cells({on_all_ranks(box, p_.world), mine.address()});
    if (range.empty()) return std::nullopt;
    std::vector<TaskId> members;
    other.where.classes_in(range, [&](uint32_t k) {
      const auto [begin, end] = other.where.tasks(k);
      const Box& theirs = other.where.box(k);
      const bool same_blocks =
          mine.buffer() == other.where.buffer() && have_same_blocks(box, theirs);
      if (same_blocks && !meet_in_block(box, theirs)) return;
      const bool moves = !same_blocks && (box.moves() || theirs.moves());
      if (!moves && !same_blocks && !meet({box, mine.address()}, {theirs, other.where.address()}))
        return;
      for (const TaskId* m = begin; m != end && *m < t; ++m)
        if (const uint64_t both = ranks(*m) & ranks(t);
            both &&
            (!moves || meet_on(both, {box, mine.address()}, {theirs, other.where.address()})))
          members.push_back(*m);
    });
    if (members.empty()) return std::nullopt;
    return ordered(std::move(members));
  }
  bool meet_on(uint64_t ranks, const Placed& a, const Placed& b) const {
    for (int64_t r = 0; r < p_.world; ++r)
      if (ranks >> r & 1 && meet({on_rank(a.box, r), a.address}, {on_rank(b.box, r), b.address}))
        return true;
    return false;
  }
  uint32_t ordered(std::vector<TaskId> members) {
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    return sets_.number(std::move(members));
  }

  void add_part(TaskId t, Part part) {
    if (!sets_[part.set].empty()) parts_[index(t) - first_task_].push_back(part);
  }

  // Adds the sets that a task needs, one for each call if that isn't too large; latest first.
  void add_sets(std::vector<Part>& parts) {
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    std::vector<uint32_t>& sets = sets_of_task_;
    sets.clear();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 && parts[i].call == parts[i - 1].call &&
          sets_[sets.back()].size() + sets_[parts[i].set].size() <= kMostUnited)
        sets.back() = sets_.united(sets.back(), parts[i].set);
      else
        sets.push_back(parts[i].set);
    }
    sort_latest_first(found_.sets, sets.begin(), sets.end());
    sets.erase(std::unique(sets.begin(), sets.end()), sets.end());
    found_.on.insert(found_.on.end(), sets.begin(), sets.end());
  }

  // Whether the boxes, with the ranks that write them, cover all of a buffer on each rank.
  bool fills(const std::map<Box, uint64_t>& written, int64_t buffer_bytes) const {
    int64_t bytes = 0;
    bool alike = true;  // whether all ranks write the same boxes
    for (const auto& [box, who] : written) {
      bytes += (box.r1 - box.r0) * (box.c1 - box.c0) * std::popcount(who);
      alike = alike && who == all_ && !box.moves();
    }
    if (bytes < buffer_bytes * p_.world) return false;
    for (int64_t rank = 0; rank < (alike ? 1 : p_.world); ++rank) {
      std::vector<Box> here;
      bytes = 0;
      for (const auto& [box, who] : written)
        if (who >> rank & 1) {
          here.push_back(on_rank(box, rank));
          bytes += (box.r1 - box.r0) * (box.c1 - box.c0);
        }
      if (bytes < buffer_bytes || !are_apart(std::move(here))) return false;
    }
    return true;
  }

  // Forgets what the block overwrote. Whoever touches such bytes later comes after the block's task
  // that wrote them, and so after what was there before.
  void forget(uint32_t first) {
    std::map<ir::BufferId, std::map<Box, uint64_t>> boxes;  // and the ranks that write them
    std::map<ir::BufferId, bool> whole;
    for (size_t f = first; f < touched_.size(); ++f) {
      const Footprint& where = touched_[f]->where;
      if (!where.writes()) continue;
      const ir::Buffer& buffer = p_[where.buffer()];
      for (size_t k = 0; k < where.classes(); ++k) {
        const Box& box = where.box(k);
        uint64_t who = 0;
        const auto [begin, end] = where.tasks(k);
        for (const TaskId* t = begin; t != end; ++t) who |= ranks(*t);
        if (who == all_ && !box.moves() && box.from < 0 && box.c0 == 0 && box.c1 == box.pitch &&
            box.r0 == 0 && box.end() >= buffer.bytes())
          whole[where.buffer()] = true;
        // This leaves out boxes that a call may leave unwritten, and boxes whose place depends on
        // the launch.
        if (where.kind() == ir::AccessKind::Write && box.step == box.last_step)
          boxes[where.buffer()][box] |= who;
      }
    }
    for (const auto& [b, written] : boxes)
      if (fills(written, p_[b].bytes())) whole[b] = true;
    for (const auto& [b, yes] : whole) {
      const int64_t begin = addresses_[index(b)];
      live_.clear(begin, begin + p_[b].bytes(), first, [&](uint32_t f) { touched_[f].reset(); });
    }
  }

  const ir::Program& p_;
  const bool of_events_;  // whether packets are left out
  const uint64_t all_;    // the set of all ranks
  Dependencies found_;
  Sets sets_;
  std::vector<CallTasks> calls_;
  std::vector<CallId> order_;  // calls with tasks, by their first task
  std::vector<bool> written_;  // by buffer
  std::vector<int64_t> addresses_;
  std::vector<std::unique_ptr<Touched>> touched_;  // null if no later task can conflict with it
  LiveBytes live_;
  // For the current block.
  size_t first_task_ = 0;
  std::vector<std::vector<Part>> parts_;  // by task; others are empty
  std::vector<uint32_t> sets_of_task_;
};

// All tasks, sorted call by call wherever the tasks of more than `most_among` calls alternate.
std::vector<TaskId> by_calls(const ir::Program& p, size_t most_among) {
  std::vector<size_t> last(p.calls.size(), 0), number(p.calls.size(), 0);
  for (size_t t = 0; t < p.tasks.size(); ++t) last[index(p.tasks[t].call)] = t;
  std::vector<TaskId> sorted;
  std::vector<bool> seen(p.calls.size(), false);
  for (size_t first = 0; first < p.tasks.size();) {
    size_t end = first, calls = 0;
    for (size_t most = first; end <= most; ++end) {
      const size_t call = index(p.tasks[end].call);
      if (!seen[call]) number[call] = calls++;
      seen[call] = true;
      most = std::max(most, last[call]);
    }
    const auto begin = static_cast<std::ptrdiff_t>(sorted.size());
    for (size_t t = first; t < end; ++t) sorted.push_back(ir::id_of<TaskId>(t));
    if (calls > most_among)
      std::stable_sort(sorted.begin() + begin, sorted.end(), [&](TaskId a, TaskId b) {
        return number[index(p[a].call)] < number[index(p[b].call)];
      });
    first = end;
  }
  return sorted;
}

// The dependencies of the sorted tasks, if each task depends only on earlier ones of the Program.
// Two tasks that conflict then have the same order in both lists, so that these dependencies also
// order them in the Program. Otherwise nothing.
std::optional<Dependencies> found_by_calls(const ir::Program& p, bool of_events,
                                           size_t most_among) {
  const std::vector<TaskId> sorted = by_calls(p, most_among);
  if (std::is_sorted(sorted.begin(), sorted.end())) return std::nullopt;
  ir::Program other = p;
  std::vector<TaskId> place(sorted.size());  // by task: its number in `other`
  std::vector<TaskId> last(p.calls.size());  // by call: the number of its last task in `other`
  for (size_t i = 0; i < sorted.size(); ++i) {
    other.tasks[i] = p[sorted[i]];
    last[index(other.tasks[i].call)] = place[index(sorted[i])] = ir::id_of<TaskId>(i);
  }
  // Task::after refers to the order of tasks; in the sorted order the named call may stand behind
  // the task.
  for (size_t i = 0; i < sorted.size(); ++i)
    for (CallId c : other.tasks[i].after)
      if (last[index(c)] >= ir::id_of<TaskId>(i)) return std::nullopt;
  Dependencies there = Finder(other, of_events).run();
  Dependencies found;
  found.sets = std::move(there.sets);
  found.searches = there.searches;
  for (std::vector<TaskId>& set : found.sets) {
    for (TaskId& t : set) t = sorted[index(t)];
    std::sort(set.begin(), set.end());
  }
  for (size_t t = 0; t < sorted.size(); ++t) {
    found.first.push_back(found.on.size());
    for (uint32_t set : there.of(place[t])) {
      if (found.sets[set].back() >= ir::id_of<TaskId>(t)) return std::nullopt;
      found.on.push_back(set);
    }
    sort_latest_first(found.sets,
                      found.on.begin() + static_cast<std::ptrdiff_t>(found.first.back()),
                      found.on.end());
  }
  found.first.push_back(found.on.size());
  return found;
}

Dependencies find(const ir::Program& p, bool of_events, size_t most_among) {
  if (auto found = found_by_calls(p, of_events, most_among)) return std::move(*found);
  return Finder(p, of_events).run();
}

}  // namespace

Dependencies find_dependencies(const ir::Program& program, size_t most_among) {
  return find(program, false, most_among);
}
Dependencies find_dependencies_of_events(const ir::Program& program) {
  return find(program, true, kMostAmong);
}

}  // namespace maco::passes
