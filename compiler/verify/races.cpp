// Races, rank by rank and launch by launch: what the short proof (at_once.h) couldn't show, and
// what is wrong. Nodes are taken in topological order; of two conflicting accesses the second finds
// the first in the history of the bytes and asks its clock whether the first has ended before. So
// that histories stay short, an access is forgotten
//   - when a later write covers its bytes and is ordered after it: whoever is ordered after the
//     later one is ordered after it (but who polls packets need not be: writes of those are kept);
//   - when it reads, and so does one that is ordered after it and later in the list, the same box;
//   - when every task that is still to come and may touch such bytes is ordered after it.
// Private memory is looked at in one launch only (launches of a rank follow each other), slots in
// as many as Model::launches says.
//
// In a symmetric model a node stands for the same task of every rank. What they do to the memory of
// rank 0 is what they do to any rank's, unless places depend on the rank otherwise than by a
// rotation of blocks: then the memory of each is looked at.
#include "compiler/verify/races.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "compiler/verify/clocks.h"
#include "compiler/verify/flags.h"
#include "compiler/verify/history.h"
#include "compiler/verify/regions.h"

namespace maco::verify {
namespace {

using ir::Access;
using ir::BufferKind;
using ir::EventKind;
using ir::id_of;
using ir::TaskId;

class Races {
 public:
  Races(const Model& model, const std::vector<Node>& order, const VerifyOptions& options,
        Reporter& reporter, VerifyStatistics& statistics)
      : m_(model),
        p_(model.program),
        order_(order),
        options_(options),
        report_(reporter),
        statistics_(statistics),
        layout_(p_),
        clocks_(model) {}

  void run() {
    number_accesses();
    const BoxTable table(boxes_, box_ids_);
    boxes_ = {};
    table_ = &table;
    const size_t words = static_cast<size_t>(m_.world) * m_.streams.size();
    histories_.assign(static_cast<size_t>(m_.world), History(table));
    count_pending();
    find_last_tasks();
    find_barriers();
    // Often enough to keep histories short, seldom enough to cost a constant a node.
    const size_t period = options_.forget_every > 0 ? options_.forget_every
                                                    : std::max<size_t>(128, words * words / 128);
    for (launch_ = 0; launch_ < m_.launches; ++launch_) {
      clocks_.begin_launch(launch_);
      next_in_list_ = 0;
      done_.assign(m_.tasks(), 0);
      for (size_t i = 0; i < order_.size(); ++i) {
        const Node node = order_[i];
        clocks_.start(node);
        if (m_.runs(node.task, node.rank)) {
          visit(node);
          // Later launches know no less: their waits are the same, and some are for earlier ones.
          if (launch_ == 0) {
            come_after(node);
            leave_barrier(node);
          }
        }
        clocks_.end(node);
        passed(node);
        if (++statistics_.nodes % static_cast<int64_t>(period) == 0) raise_floors();
      }
    }
    tell();
  }

 private:
  // --- accesses and their boxes ---

  bool is_slot(const Access& a) const { return p_[a.region.buffer].kind == BufferKind::Slot; }

  /// Which memory differs from rank to rank by more than a rotation of blocks.
  void find_movers() {
    // All accesses of a slot have rows of one pitch, in blocks of equally many, of which a task
    // touches (a part of) one that follows from its rank, or all: seen from the next rank, it is
    // the same one block further.
    struct Blocks {
      int64_t rows = 0, pitch = 0;  // of a row: bytes
    };
    std::map<int64_t, Blocks> blocks;  // by place: slots may share one
    std::map<int64_t, bool> moves;
    const auto place = [&](const ir::Region& r) { return *p_[r.buffer].offset; };
    const auto pitch = [&](const ir::Region& r) { return r.pitch * size_of(p_[r.buffer].dtype); };
    for (const ir::Task& t : p_.tasks)
      for (const Access& a : t.accesses) {
        if (!a.region.block.moves()) continue;
        if (!is_slot(a)) {
          private_moves_ = true;
          continue;
        }
        // How far a block of run-time height is from the next, only the launch knows.
        if (a.region.block.value) moves[place(a.region)] = true;
        blocks[place(a.region)] = {a.region.block.rows, pitch(a.region)};
      }
    for (const ir::Task& t : p_.tasks)
      for (const Access& a : t.accesses) {
        const ir::Region& r = a.region;
        if (!is_slot(a)) continue;
        const auto at = blocks.find(place(r));
        if (at == blocks.end() || at->second.rows == 0) continue;
        const Blocks& b = at->second;
        const bool rotates =
            pitch(r) == b.pitch &&
            (r.block.moves() ? r.block.rows == b.rows && r.r0 >= 0 && r.r1 <= b.rows
                             : covers_blocks(r, b.rows));
        if (!rotates) moves[place(r)] = true;
      }
    for (const ir::Buffer& b : p_.buffers)
      slot_moves_.push_back(b.kind == BufferKind::Slot && moves[*b.offset]);
  }

  /// Whether `r`, the same on every rank, touches the same rows of every block of `rows`.
  bool covers_blocks(const ir::Region& r, int64_t rows) const {
    using enum ir::RankRef::Kind;
    if (!r.block.any()) return r.r0 == 0 && r.r1 == rows * m_.world;
    return r.block.rows == rows && (r.block.ref.kind == All || r.block.ref.kind == Others) &&
           r.r0 >= 0 && r.r1 <= rows;
  }

  /// The boxes of an access, by runner (if it matters) and copy.
  void number_accesses() {
    find_movers();
    for (const ir::Task& t : p_.tasks) {
      first_access_.push_back(static_cast<uint32_t>(first_box_.size()));
      for (const Access& a : t.accesses) {
        first_box_.push_back(static_cast<uint32_t>(boxes_.size()));
        if (!layout_.matters(a.region.buffer)) continue;
        const bool moves = a.region.block.moves();
        for (int runner = 0; runner < (moves ? m_.world : 1); ++runner)
          for (int64_t copy = 0; copy < p_[a.region.buffer].rotation; ++copy)
            boxes_.push_back(
                !moves || ((t.ranks >> runner) & 1) ? layout_.box(a.region, runner, copy) : Box{});
      }
    }
  }
  uint32_t box_of(uint32_t task, uint32_t access, int runner) const {
    const Access& a = p_.tasks[task].accesses[access];
    const int64_t copies = p_[a.region.buffer].rotation;
    const int64_t variant = (a.region.block.moves() ? runner : 0) * copies + launch_ % copies;
    return box_ids_[first_box_[first_access_[task] + access] + static_cast<size_t>(variant)];
  }

  // --- one node ---

  void visit(Node node) {
    const std::vector<Access>& accesses = p_.tasks[node.task].accesses;
    for (uint32_t i = 0; i < accesses.size(); ++i) {
      const Access& a = accesses[i];
      const bool slot = is_slot(a);
      if (!layout_.matters(a.region.buffer) || (launch_ > 0 && !slot) ||
          p_[a.region.buffer].own_packets())
        continue;
      const ir::RankRef where = slot ? a.region.where : ir::RankRef::self();
      if (!m_.symmetric) {
        for (int memory : resolve(where, node.rank, m_.world))
          access(node.task, i, node.rank, memory);
        continue;
      }
      const bool moves = slot ? slot_moves_[index(a.region.buffer)] : private_moves_;
      const int memories = moves ? m_.world : 1;
      for (int memory = 0; memory < memories; ++memory)
        for (int runner = 0; runner < m_.world; ++runner)
          if (names(where, runner, memory, m_.world)) access(node.task, i, runner, memory);
    }
  }

  void access(uint32_t task, uint32_t i, int runner, int memory) {
    const Access& a = p_.tasks[task].accesses[i];
    const uint32_t box = box_of(task, i, runner);
    if ((*table_)[box].empty()) return;
    const uint32_t stream = m_.stream_of[task];
    const Past now{task,
                   i,
                   clocks_.number(task, launch_),
                   stream,
                   static_cast<int16_t>(runner),
                   static_cast<int16_t>(launch_),
                   a.writes(),
                   is_slot(a),
                   0};
    const Clocks::View view = clocks_.view(stream, runner);
    History& history = histories_[static_cast<size_t>(memory)];
    history.visit(box, now.writes, [&](uint32_t other, const Past& past) {
      if (past.task == task && past.runner == runner && past.launch == launch_) return false;
      const bool ordered = view.ended(past.writes ? Plane::Strong : Plane::Weak, past.runner,
                                      past.stream) >= past.number;
      ++statistics_.pairs;
      if (!ordered) {
        if (!tells_apart(m_, {past.task, past.access, past.runner}, {task, i, runner}, memory,
                         launch_ - past.launch))
          violation(past, now, "race");
        return false;
      }
      if (past.launch == launch_ && past.task > task && !is_followed(past, now))
        violation(past, now, "order");
      return retired(past) || (now.writes && covers((*table_)[box], (*table_)[other]));
    });
    if (a.writes()) {
      history.add_write(box, now);
      return;
    }
    // Whoever is ordered after this read is ordered after those of the same bytes that this one is
    // ordered after. What the list has later is kept: its order is held against writes too.
    history.add_read(box, now, [&](const Past& past) {
      return (past.launch < launch_ || past.task <= task) &&
             view.ended(Plane::Weak, past.runner, past.stream) >= past.number;
    });
  }

  /// Whether the list needn't have the two in their order: what ranks move by way of one slot is
  /// followed whichever task the list has first (contributions.cpp). A rank may send on what the
  /// same task gives to the next rank.
  bool is_followed(const Past& past, const Past& now) const {
    const ir::Task &a = p_.tasks[past.task], &b = p_.tasks[now.task];
    return past.slot && past.runner != now.runner && !p_[a.call].transfers.empty() &&
           !p_[b.call].transfers.empty() &&
           a.accesses[past.access].region.buffer == b.accesses[now.access].region.buffer;
  }

  // --- orders that no data says ---

  /// The last task in a stream among those of a call that run on the same ranks.
  struct Last {
    uint32_t task;
    uint64_t ranks;
  };
  void find_last_tasks() {
    std::vector<bool> wanted(p_.calls.size(), false);
    for (const ir::Task& t : p_.tasks)
      for (ir::CallId c : t.after) wanted[index(c)] = true;
    std::map<std::tuple<size_t, uint32_t, uint64_t>, uint32_t> last;
    for (uint32_t t = 0; t < m_.tasks(); ++t) {
      const ir::Task& task = p_.tasks[t];
      if (!wanted[index(task.call)]) continue;
      const auto [at, fresh] = last.try_emplace({index(task.call), m_.stream_of[t], task.ranks}, t);
      if (!fresh && p_.tasks[at->second].place < task.place) at->second = t;
    }
    last_.resize(p_.calls.size());
    for (const auto& [key, t] : last) last_[std::get<0>(key)].push_back({t, std::get<2>(key)});
  }
  void come_after(Node node) {
    const ir::Task& task = p_.tasks[node.task];
    if (task.after.empty()) return;
    const Clocks::View view = clocks_.view(m_.stream_of[node.task], node.rank);
    for (ir::CallId c : task.after)
      for (const Last& before : last_[index(c)]) {
        if (!((before.ranks >> node.rank) & 1) ||
            view.ended(Plane::Weak, node.rank, m_.stream_of[before.task]) >=
                clocks_.number(before.task, 0))
          continue;
        const Past first{.task = before.task, .runner = static_cast<int16_t>(node.rank)};
        const Past second{.task = node.task, .runner = static_cast<int16_t>(node.rank)};
        const auto [at, fresh] =
            early_groups_.emplace(std::tuple(index(c), index(task.call)), early_.size());
        if (fresh)
          early_.push_back({first, second, "after", 0});
        else
          ++early_[at->second].more;
      }
  }

  /// The last task of a barrier on any rank comes after its first on every rank; what stands before
  /// and after the barrier is in `after`.
  void find_barriers() {
    for (const ir::Collective& c : p_.collectives) {
      if (c.kind != ir::CollectiveKind::Barrier) continue;
      uint32_t first = ~0u, last = ~0u;
      for (uint32_t t = 0; t < m_.tasks(); ++t) {
        if (p_[p_.tasks[t].call].op != c.op) continue;
        if (first == ~0u) first = t;
        last = t;
      }
      if (first == ~0u)
        report_.error(fmt::format("order: no task does the work of '{}'", c.op));
      else
        barriers_.emplace(last, first);
    }
  }
  void leave_barrier(Node node) {
    const auto at = barriers_.find(node.task);
    if (at == barriers_.end()) return;
    const Clocks::View view = clocks_.view(m_.stream_of[node.task], node.rank);
    const uint32_t entry = at->second;
    for (int rank = 0; rank < m_.world; ++rank) {
      // On its own rank, whatever comes after the barrier comes after all of the rank's tasks.
      if (rank == node.rank ||
          (m_.runs(entry, rank) &&
           view.ended(Plane::Weak, rank, m_.stream_of[entry]) >= clocks_.number(entry, 0)))
        continue;
      if (report_.error(id_of<TaskId>(node.task),
                        fmt::format("order: barrier '{}' lets rank {} go on before rank {} has "
                                    "come to it",
                                    p_[p_.tasks[node.task].call].op, node.rank, rank))) {
        const Past last{.task = node.task, .runner = static_cast<int16_t>(node.rank)};
        if (m_.runs(entry, rank))
          report_.witness({.claim = Witness::Claim::Order,
                           .first = {entry, rank, 0},
                           .second = instance(last)});
        report_.note(id_of<TaskId>(node.task), sync(last));
      }
      return;
    }
  }

  // --- what every task to come is ordered after ---

  struct Pending {
    uint32_t tasks = 0;  // that touch private memory, in the first launch
    uint32_t slots = 0;  // that touch slots, in all
  };
  Pending& pending(int rank, uint32_t stream) {
    return pending_[static_cast<size_t>(rank) * m_.streams.size() + stream];
  }
  bool touches_slots(uint32_t task) const {
    for (const Access& a : p_.tasks[task].accesses)
      if (is_slot(a)) return true;
    return false;
  }
  void count_pending() {
    pending_.assign(static_cast<size_t>(m_.followed) * m_.streams.size(), {});
    slot_streams_.assign(m_.streams.size(), false);
    for (const Node n : order_) {
      Pending& at = pending(n.rank, m_.stream_of[n.task]);
      ++at.tasks;
      if (!touches_slots(n.task)) continue;
      at.slots += static_cast<uint32_t>(m_.launches);
      slot_streams_[m_.stream_of[n.task]] = true;
    }
    private_floor_.assign(pending_.size(), 0);
    slot_floor_ = private_floor_;
  }
  void passed(Node node) {
    Pending& at = pending(node.rank, m_.stream_of[node.task]);
    if (launch_ == 0) --at.tasks;
    if (at.slots > 0 && touches_slots(node.task)) --at.slots;
    if (++done_[node.task] == m_.followed)
      while (next_in_list_ < m_.tasks() && done_[next_in_list_] == m_.followed) ++next_in_list_;
  }
  // Where ranks do the same, those of rank 0 are those of all.
  void raise_floors() {
    const auto streams = static_cast<uint32_t>(m_.streams.size());
    for (int rank = 0; rank < m_.followed; ++rank)
      for (uint32_t s = 0; s < streams; ++s) {
        uint32_t local = ~0u, slot = ~0u;
        for (uint32_t of = 0; of < streams; ++of) {
          if (pending(rank, of).tasks > 0)
            local = std::min(local, clocks_.view(of, rank).ended(Plane::Strong, rank, s));
          if (!slot_streams_[s]) continue;
          for (int r = 0; r < m_.world; ++r)
            if (pending(m_.symmetric ? 0 : r, of).slots > 0)
              slot = std::min(slot, clocks_.view(of, r).ended(Plane::Strong, rank, s));
        }
        private_floor_[static_cast<size_t>(rank) * streams + s] = local;
        slot_floor_[static_cast<size_t>(rank) * streams + s] = slot;
      }
  }
  bool retired(const Past& past) const {
    // Its place in the list matters while earlier tasks of the list are still to come.
    if (past.launch == launch_ && past.task >= next_in_list_) return false;
    const std::vector<uint32_t>& floor = past.slot ? slot_floor_ : private_floor_;
    const auto rank = static_cast<size_t>(m_.symmetric ? 0 : past.runner);
    return past.number <= floor[rank * m_.streams.size() + past.stream];
  }

  // --- what is wrong ---

  struct Violation {
    Past first, second;  // as they were met
    const char* kind;
    size_t more = 0;  // of the same ops and buffers
  };

  void violation(const Past& past, const Past& now, const char* kind) {
    const Access& a = p_.tasks[past.task].accesses[past.access];
    const Access& b = p_.tasks[now.task].accesses[now.access];
    const auto group = std::tuple(index(p_.tasks[past.task].call), index(p_.tasks[now.task].call),
                                  index(a.region.buffer), index(b.region.buffer), past.writes,
                                  now.writes, kind[0]);
    const auto [at, fresh] = groups_.emplace(group, violations_.size());
    if (fresh) {
      violations_.push_back({past, now, kind, 0});
    } else {
      ++violations_[at->second].more;
    }
  }

  static Instance instance(const Past& past) { return {past.task, past.runner, past.launch}; }
  std::string text(const Past& past) const {
    std::string where;
    if (m_.world > 1) where += fmt::format("rank {}", past.runner);
    if (m_.launches > 1)
      where += fmt::format("{}launch {}", where.empty() ? "" : ", ", past.launch);
    return describe(p_, id_of<TaskId>(past.task)) + (where.empty() ? "" : " (" + where + ")");
  }
  std::string touches(const Past& past) const {
    const Access& a = p_.tasks[past.task].accesses[past.access];
    std::string what = fmt::format("{} {}", past.writes ? "writes" : "reads",
                                   to_string(p_, a.region, past.runner));
    if (a.region.where != ir::RankRef::self()) what += " on " + to_string(a.region.where);
    return what;
  }
  std::string sync(const Past& past) const {
    const ir::Task& t = p_.tasks[past.task];
    std::string text = fmt::format("{} is task {} of CTA {}",
                                   describe(p_, id_of<TaskId>(past.task)), t.place, t.sm);
    const char* separator = "; waits for ";
    for (const ir::Wait& w : t.waits) {
      text += fmt::format("{}'{}'", separator, m_.event(w.event).name);
      if (w.from != ir::RankRef::self()) text += " of " + to_string(w.from);
      if (w.lag > 0) text += fmt::format(" of {} launches ago", w.lag);
      separator = ", ";
    }
    separator = "; signals ";
    for (const ir::Signal& s : t.signals) {
      text += fmt::format("{}'{}'", separator, m_.event(s.event).name);
      if (s.to != ir::RankRef::self()) text += " on " + to_string(s.to);
      separator = ", ";
    }
    return text;
  }

  /// The bytes that both touch, and what would order the two.
  std::string missing_edge(const Past& x, const Past& y) const {
    const Access& a = p_.tasks[x.task].accesses[x.access];
    const Access& b = p_.tasks[y.task].accesses[y.access];
    const ir::Region &u = a.region, &v = b.region;
    std::string where;
    if (u.buffer == v.buffer && u.pitch == v.pitch) {
      ir::Region both = u;
      const bool together = u.from && u.from == v.from;
      const ir::Interval none{.lo = 0, .hi = 0};
      const ir::Interval su = together ? none : shift_of(p_, u, x.runner),
                         sv = together ? none : shift_of(p_, v, y.runner);
      both.block = {};
      if (!together) both.from.reset();
      both.r0 = std::max(u.r0 + su.lo, v.r0 + sv.lo);
      both.r1 = std::min(u.r1 + su.hi, v.r1 + sv.hi);
      both.c0 = std::max(u.c0, v.c0);
      both.c1 = std::min(u.c1, v.c1);
      where = to_string(p_, both, 0);
    } else {
      const Box s = layout_.box(u, x.runner, x.launch % p_[u.buffer].rotation);
      const Box t = layout_.box(v, y.runner, y.launch % p_[v.buffer].rotation);
      where =
          fmt::format("bytes of '{}' from {} to {}", p_[u.buffer].name,
                      std::max(s.start, t.start) - s.start, std::min(s.end(), t.end()) - s.start);
    }
    std::string edge = fmt::format("{} has to wait for an event that {} signals", text(y), text(x));
    if (x.runner != y.runner) edge += fmt::format(" to rank {}", y.runner);
    if (y.launch > x.launch) edge += fmt::format(", with lag {}", y.launch - x.launch);
    return fmt::format("both touch {}; {}, or come after a task that does", where, edge);
  }

  void tell() {
    for (const Violation& v : violations_) {
      const Access& a = p_.tasks[v.first.task].accesses[v.first.access];
      const Access& b = p_.tasks[v.second.task].accesses[v.second.access];
      const std::string shared = a.region.buffer == b.region.buffer ? "" : ", which share memory";
      const std::string more = v.more > 0 ? fmt::format(" ({} more such pairs)", v.more) : "";
      // Told in the order of the list, whichever was met first.
      const bool swap = v.first.launch == v.second.launch && v.first.task > v.second.task;
      const Past& x = swap ? v.second : v.first;
      const Past& y = swap ? v.first : v.second;
      const bool race = v.kind[0] == 'r';
      const std::string message =
          race ? fmt::format("race: {} {}, and {} {}{}: nothing orders the two{}", text(x),
                             touches(x), text(y), touches(y), shared, more)
               : fmt::format("order: {} {} before {} {}{}, but has to come after it{}", text(y),
                             touches(y), text(x), touches(x), shared, more);
      if (!report_.error(id_of<TaskId>(y.task), message)) continue;
      report_.witness({.claim = race ? Witness::Claim::Race : Witness::Claim::Order,
                       .first = instance(x),
                       .second = instance(y)});
      report_.note(id_of<TaskId>(x.task), sync(x));
      report_.note(id_of<TaskId>(y.task), sync(y));
      report_.note(id_of<TaskId>(y.task), missing_edge(x, y));
    }
    for (const Violation& v : early_) {
      const std::string more = v.more > 0 ? fmt::format(" ({} more such pairs)", v.more) : "";
      if (!report_.error(id_of<TaskId>(v.second.task),
                         fmt::format("order: {} may start before {} has ended, but has to come "
                                     "after it{}",
                                     text(v.second), text(v.first), more)))
        continue;
      report_.witness({.claim = Witness::Claim::Order,
                       .first = instance(v.first),
                       .second = instance(v.second)});
      report_.note(id_of<TaskId>(v.first.task), sync(v.first));
      report_.note(id_of<TaskId>(v.second.task), sync(v.second));
    }
    report_.summarise("races");
  }

  const Model& m_;
  const ir::Program& p_;
  const std::vector<Node>& order_;
  const VerifyOptions& options_;
  Reporter& report_;
  VerifyStatistics& statistics_;
  const Layout layout_;
  Clocks clocks_;
  int launch_ = 0;

  std::vector<Box> boxes_;  // of all accesses, while they are numbered
  std::vector<uint32_t> box_ids_;
  std::vector<uint32_t> first_access_;  // by task: index into first_box_
  std::vector<uint32_t> first_box_;     // by access: index into box_ids_
  const BoxTable* table_ = nullptr;
  std::vector<bool> slot_moves_;  // by buffer: places depend on the rank
  bool private_moves_ = false;
  std::vector<History> histories_;  // by rank whose memory it is

  std::vector<Pending> pending_;                      // by followed rank and stream
  std::vector<bool> slot_streams_;                    // streams with tasks that touch slots
  std::vector<uint32_t> private_floor_, slot_floor_;  // by followed rank and stream
  std::vector<int> done_;                             // by task: nodes of this launch
  size_t next_in_list_ = 0;

  std::map<uint32_t, uint32_t> barriers_;  // the first task by the last

  std::vector<std::vector<Last>> last_;  // by call, of those that another comes after

  std::vector<Violation> violations_;
  std::map<std::tuple<size_t, size_t, size_t, size_t, bool, bool, char>, size_t> groups_;
  std::vector<Violation> early_;
  std::map<std::tuple<size_t, size_t>, size_t> early_groups_;
};

}  // namespace

void check_races(const Model& model, const std::vector<Node>& order, const VerifyOptions& options,
                 Reporter& reporter, VerifyStatistics& statistics) {
  Races(model, order, options, reporter, statistics).run();
}

}  // namespace maco::verify
