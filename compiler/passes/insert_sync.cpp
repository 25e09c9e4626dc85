// insert_sync.cpp: makes events for every dependency on a rank.
//
// A task depends on sets of tasks (dependencies.h). It waits for those sets that neither stream
// order nor its other waits imply on the rank. An awaited set is an event that counts its tasks, so
// that a reduction over a row of tiles needs one wait. Sets that overlap are cut into pieces with
// an event each (event_pieces.h), and events that are always waited for together become one
// (merge_events.h). Waits across ranks exist already: the collectives' tile rules make them, and
// prune-sync knows what they imply.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/passes/dependencies.h"
#include "compiler/passes/event_pieces.h"
#include "compiler/passes/known.h"
#include "compiler/passes/merge_events.h"
#include "compiler/passes/passes.h"

namespace maco::passes {

namespace {

using ir::CallId;
using ir::TaskId;

class Inserter {
 public:
  explicit Inserter(ir::Program& p) : p_(p), found_(find_dependencies_of_events(p)) {
    for (uint32_t set : found_.on) dependencies_ += static_cast<int64_t>(found_.sets[set].size());
  }

  void run() {
    choose();
    cut();
    make_events();
  }
  int64_t dependencies() const { return dependencies_; }
  int64_t joins() const { return joins_; }
  int64_t searches() const { return found_.searches; }

 private:
  // Keeps the sets for which tasks have to wait.
  void choose() {
    std::vector<Group> groups(found_.sets.size());
    for (size_t s = 0; s < groups.size(); ++s) groups[s].tasks = found_.sets[s];
    for (uint32_t set : found_.on) groups[set].uses++;
    Known known(p_, std::move(groups), Known::Peers::Ignored);
    Clocks now;
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      const auto task = ir::id_of<TaskId>(t);
      known.begin(task, now);
      bool waits = false;
      for (uint32_t set : found_.of(task)) {
        if (known.has(now, task, set)) continue;
        known.hear(now, task, set);
        waits_.push_back({set, task});
        waits = true;
      }
      known.end(task, now, waits);
      for (uint32_t set : found_.of(task)) known.done(set);
    }
    joins_ = known.joins();
  }

  // Replaces waits for sets by waits for their pieces, call by call.
  void cut() {
    std::vector<int64_t> uses(found_.sets.size(), 0);
    std::vector<std::vector<uint32_t>> of_call(p_.calls.size());  // awaited sets
    for (const Wait& w : waits_)
      if (uses[w.set]++ == 0) of_call[index(p_[found_.sets[w.set][0]].call)].push_back(w.set);
    std::vector<std::vector<uint32_t>> pieces(found_.sets.size());  // by set
    for (std::vector<uint32_t>& sets : of_call) {
      std::sort(sets.begin(), sets.end());
      std::vector<std::vector<TaskId>> tasks;
      std::vector<int64_t> used;
      for (uint32_t set : sets) {
        tasks.push_back(std::move(found_.sets[set]));
        used.push_back(uses[set]);
      }
      EventPieces cut = cut_sets(std::move(tasks), std::move(used));
      for (size_t s = 0; s < sets.size(); ++s)
        for (uint32_t piece : cut.of[s])
          pieces[sets[s]].push_back(static_cast<uint32_t>(pieces_.size()) + piece);
      std::move(cut.tasks.begin(), cut.tasks.end(), std::back_inserter(pieces_));
    }
    std::vector<Wait> waits;
    for (const Wait& w : waits_)
      for (uint32_t piece : pieces[w.set]) waits.push_back({piece, w.task});
    waits_ = std::move(waits);
  }

  // Makes an event for each piece, in the order of its call, the first call that waits for it, and
  // its tasks.
  void make_events() {
    struct Awaited {
      CallId call{}, by{};
      uint32_t piece = 0;
    };
    std::vector<Awaited> awaited;
    std::vector<bool> seen(pieces_.size(), false);
    for (const Wait& w : waits_)
      if (!seen[w.set]) {
        seen[w.set] = true;
        awaited.push_back({p_[pieces_[w.set][0]].call, p_[w.task].call, w.set});
      }
    std::sort(awaited.begin(), awaited.end(), [&](const Awaited& a, const Awaited& b) {
      return std::tie(a.call, a.by, pieces_[a.piece], a.piece) <
             std::tie(b.call, b.by, pieces_[b.piece], b.piece);
    });
    std::vector<ir::EventId> events(pieces_.size());
    for (const Awaited& a : awaited) events[a.piece] = event_of(pieces_[a.piece]);
    for (const Wait& w : waits_) {
      const ir::Wait wait{events[w.set], ir::RankRef::self(), 0};
      std::vector<ir::Wait>& waits = p_[w.task].waits;  // a task's sets may share pieces
      if (std::find(waits.begin(), waits.end(), wait) == waits.end()) waits.push_back(wait);
    }
  }

  ir::EventId event_of(const std::vector<TaskId>& producers) {
    p_.events.push_back(
        {name_of(producers), ir::EventKind::Local, static_cast<uint32_t>(producers.size())});
    const auto e = ir::id_of<ir::EventId>(p_.events.size() - 1);
    for (TaskId t : producers) p_[t].signals.push_back({e, ir::RankRef::self()});
    return e;
  }

  // An event's name in reports: the op and the tiles whose ends the event counts, "h tile 3", "h
  // tiles 0..7"; if the op has several calls, also which call, "y combine tile 3". Names are
  // unique: the calls' labels differ, and equal spellings of different sets are numbered.
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
    const auto use = [](const ir::Call& c) { return c.op + " " + ir::function_text(c); };
    for (const ir::Call& c : p_.calls) calls_of[c.op]++, uses_of[use(c)]++;
    std::map<std::string, int> part;
    for (const ir::Call& c : p_.calls) {
      ++part[c.op];
      labels_.push_back(calls_of[c.op] == 1    ? c.op
                        : uses_of[use(c)] == 1 ? use(c)
                                               : fmt::format("{} part {}", c.op, part[c.op]));
    }
  }

  struct Wait {
    uint32_t set;  // after cutting: the piece
    TaskId task;
  };

  ir::Program& p_;
  Dependencies found_;
  int64_t dependencies_ = 0;
  int64_t joins_ = 0;  // of clocks
  std::vector<Wait> waits_;
  std::vector<std::vector<TaskId>> pieces_;
  std::vector<std::string> labels_;   // by call
  std::map<std::string, int> spelt_;  // how many events have this spelling
};

}  // namespace

bool insert_sync(ir::Program& program, PassContext& context) {
  Inserter inserter(program);
  inserter.run();
  merge_events(program);
  program.stage = ir::Stage::Synced;
  context.statistics["dependencies"] = inserter.dependencies();
  context.statistics["searches by insert-sync"] = inserter.searches();
  context.statistics["clocks joined by insert-sync"] = inserter.joins();
  int64_t waits = 0;
  for (const ir::Task& t : program.tasks) waits += static_cast<int64_t>(t.waits.size());
  context.statistics["waits inserted"] = waits;
  return true;
}

}  // namespace maco::passes
