#include "compiler/passes/known.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "ir/ranks.h"

namespace maco::passes {

namespace {

using ir::TaskId;

// Groups up to this size are checked task by task.
constexpr size_t kFewTasks = 8;
// Whether all ranks do the same up to a rotation of the ranks.
bool rotates(const ir::Program& p) {
  const uint64_t all = ir::all_ranks(p.world);
  const auto names_one = [](ir::RankRef ref) { return ref.kind == ir::RankRef::Kind::Rank; };
  return std::none_of(p.tasks.begin(), p.tasks.end(), [&](const ir::Task& t) {
    return (t.ranks & all) != all ||
           std::any_of(t.waits.begin(), t.waits.end(),
                       [&](const ir::Wait& w) { return names_one(w.from); }) ||
           std::any_of(t.signals.begin(), t.signals.end(),
                       [&](const ir::Signal& s) { return names_one(s.to); });
  });
}

// By task: whether there may be no rows where it reads or writes, so that it polls nothing.
std::vector<bool> may_be_absent(const ir::Program& p) {
  std::vector<int64_t> least;  // rows, by buffer
  bool all_constant = true;
  for (const ir::Buffer& b : p.buffers) {
    least.push_back(b.max_rows);
    if (b.rows.is_constant()) continue;
    all_constant = false;
    const auto value = std::find_if(p.values.begin(), p.values.end(),
                                    [&](const ir::Value& v) { return v.expr == b.rows; });
    least.back() = value == p.values.end() ? 0 : value->range.lo;
  }
  if (all_constant) return {};
  std::vector<bool> absent;
  for (const ir::Task& t : p.tasks)
    absent.push_back(std::any_of(t.accesses.begin(), t.accesses.end(), [&](const ir::Access& a) {
      const ir::Region& r = a.region;
      if (r.block.value) return r.r0 >= p.values[*r.block.value].range.lo;
      return r.r0 * r.pitch + r.c0 >= least[index(r.buffer)] * p[r.buffer].cols;
    }));
  return absent;
}

// One rank of each set of ranks that skip the same tasks.
std::vector<size_t> kinds_of_ranks(const ir::Program& p) {
  std::set<uint64_t> masks;
  for (const ir::Task& t : p.tasks) masks.insert(t.ranks);
  std::set<std::vector<bool>> seen;
  std::vector<size_t> ranks;
  for (size_t r = 0; r < static_cast<size_t>(p.world); ++r) {
    std::vector<bool> runs;
    for (uint64_t m : masks) runs.push_back((m >> r & 1) != 0);
    if (seen.insert(std::move(runs)).second) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace

std::vector<Group> producers_of_events(const ir::Program& p) {
  std::vector<Group> groups(p.events.size());
  for (size_t t = 0; t < p.tasks.size(); ++t) {
    for (const ir::Signal& s : p.tasks[t].signals)
      if (std::vector<TaskId>& tasks = groups[index(s.event)].tasks;
          p[s.event].kind == ir::EventKind::Local && (tasks.empty() || index(tasks.back()) != t))
        tasks.push_back(ir::id_of<TaskId>(t));
    for (const ir::Wait& w : p.tasks[t].waits) groups[index(w.event)].uses++;
  }
  return groups;
}

Known::Known(const ir::Program& program, std::vector<Group> groups, Peers peers)
    : Known(program, std::move(groups), peers, {}) {}

Known::Known(const ir::Program& program, std::vector<Group> groups, Peers peers,
             const std::vector<TaskId>& asked)
    : p_(program),
      world_(static_cast<size_t>(program.world)),
      column_of_(static_cast<size_t>(program.ctas), -1),
      peers_(peers != Peers::Ignored),
      polled_(peers == Peers::Polled),
      rotates_(peers_ && rotates(program)),
      groups_(std::move(groups)),
      states_(groups_.size()),
      after_(program.tasks.size()),
      uses_(program.tasks.size(), 0),
      senders_(program.events.size()),
      receivers_(program.events.size(), 0) {
  if (!peers_)
    ranks_ = kinds_of_ranks(p_);
  else
    for (size_t r = 0; r < (rotates_ ? 1 : world_); ++r) ranks_.push_back(r);
  const auto add_column = [&](TaskId t) {
    if (int32_t& column = column_of_[static_cast<size_t>(p_[t].sm)]; column < 0)
      column = static_cast<int32_t>(columns_++);
  };
  for (TaskId t : asked) add_column(t);
  for (const Group& g : groups_)
    if (g.uses > 0 && asked.empty()) std::for_each(g.tasks.begin(), g.tasks.end(), add_column);
  if (polled_) absent_ = may_be_absent(p_);
  previous_.resize(p_.tasks.size());
  size_t most = 0;  // tasks of a stream
  for (const std::vector<TaskId>& stream : ir::streams(p_)) {
    for (size_t i = 1; i < stream.size(); ++i) previous_[index(stream[i])] = stream[i - 1];
    most = std::max(most, stream.size());
  }
  auto nothing = std::make_shared<Clocks>();
  nothing->own.assign(ranks_.size(), SharedCounts::kNothing);
  counts_ = std::make_unique<SharedCounts>(world_, columns_, most);
  if (peers_) {
    heard_.resize(std::max(ranks_.size(), world_));
    nothing->far.assign(ranks_.size(), SharedCounts::kNothing);
  }
  streams_.assign(column_of_.size(), nothing);
  for (const Group& g : groups_)
    for (TaskId t : g.tasks) uses_[index(t)] += g.uses > 0;
  if (!peers_) return;
  for (const ir::Task& t : p_.tasks)
    for (const ir::Wait& w : t.waits) receivers_[index(w.event)] += of_peers(w.event);
  for (size_t t = 0; t < p_.tasks.size(); ++t)
    for (const ir::Signal& s : p_.tasks[t].signals)
      if (of_peers(s.event) && receivers_[index(s.event)] > 0) {
        senders_[index(s.event)].push_back({ir::id_of<TaskId>(t), s.to});
        ++uses_[t];
      }
}

bool Known::of_peers(ir::EventId event) const {
  const ir::EventKind kind = p_[event].kind;
  return kind == ir::EventKind::Peer || (polled_ && kind == ir::EventKind::Packet);
}

std::optional<size_t> Known::column(TaskId task) const {
  const int32_t column = column_of_[static_cast<size_t>(p_[task].sm)];
  return column < 0 ? std::nullopt : std::optional(static_cast<size_t>(column));
}

void Known::begin(TaskId task, Clocks& clocks) {
  if (counts_->many()) forget_unused();
  clocks = *streams_[static_cast<size_t>(p_[task].sm)];
  for (size_t i = 0; peers_ && i < ranks_.size(); ++i)
    if (runs(task, i)) ask_peers(task, i, clocks);
}

// Adds what the task's waits for peers tell it, on the i-th rank that is followed.
void Known::ask_peers(TaskId task, size_t i, Clocks& clocks) {
  const int rank = static_cast<int>(ranks_[i]);
  bool heard = false;
  for (const ir::Wait& w : p_[task].waits) {
    // A wait with a lag tells nothing about this launch.
    if (!of_peers(w.event) || w.lag > 0) continue;
    if (p_[w.event].kind == ir::EventKind::Packet && !absent_.empty() && absent_[index(task)])
      continue;
    for (int source : ir::resolve(w.from, rank, static_cast<int>(p_.world))) {
      TaskId sender{};
      const Clocks* sent = sent_to(w.event, static_cast<size_t>(source), rank, sender);
      if (!sent) continue;
      receive(clocks, i, *sent, sender, static_cast<size_t>(source));
      heard = true;
    }
  }
  if (heard) clocks.far[i] = counts_->join_rows(clocks.far[i], heard_);
}

// What the only task that signals the event from `source` to `rank` knew; null if there are several
// such tasks, or none yet.
const Clocks* Known::sent_to(ir::EventId event, size_t source, int rank, TaskId& sender) const {
  const Sender* found = nullptr;
  for (const Sender& s : senders_[index(event)]) {
    if (!(p_[s.task].ranks >> source & 1)) continue;
    if (!ir::resolve(s.to, static_cast<int>(source), static_cast<int>(world_)).contains(rank))
      continue;
    if (found) return nullptr;
    found = &s;
  }
  if (!found) return nullptr;
  sender = found->task;
  return after_[index(sender)].get();
}

// Where ranks do the same, what rank 0 calls x is x + source to the one that sent it.
void Known::receive(Clocks& clocks, size_t i, const Clocks& sent, TaskId sender, size_t source) {
  const size_t from = rotates_ ? 0 : source;  // as the sender calls itself
  for (size_t x = 0; x < world_; ++x) {
    const uint32_t said =
        x == from ? said_of_itself(sent, sender, from) : counts_->row(sent.far[from], x);
    const size_t y = rotates_ ? (x + source) % world_ : x;
    if (said == SharedCounts::kNothing) continue;
    if (y != ranks_[i])
      heard_[y].push_back(said);
    else if (!polled_)
      clocks.own[i] = counts_->join_two_rows(clocks.own[i], said);
  }
}

uint32_t Known::said_of_itself(const Clocks& sent, TaskId sender, size_t from) {
  if (said_.row != SharedCounts::kNothing && said_.sender == sender && said_.from == from)
    return said_.row;
  const auto stream = column(sender);
  said_ = {
      sender, from,
      stream ? counts_->raised(sent.own[from], {*stream, p_[sender].place + 1}) : sent.own[from]};
  return said_.row;
}

void Known::list(uint32_t group) {
  State& state = states_[group];
  state.listed = true;
  const std::vector<TaskId>& tasks = groups_[group].tasks;
  if (tasks.size() < kFewTasks) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    std::vector<SharedCounts::Least> need;
    for (TaskId t : tasks) need.push_back({*column(t), needed(t, i)});
    state.need.push_back(counts_->raised({}, need));
  }
}

// How many tasks of its stream have to have ended: up to the task, or where the rank leaves that
// out, up to the last before it that the rank runs. Who waits for it has waited for that.
int32_t Known::needed(TaskId task, size_t i) const {
  for (std::optional<TaskId> t = task; t; t = previous_[index(*t)])
    if (runs(*t, i)) return p_[*t].place + 1;
  return 0;
}

bool Known::has(const Clocks& clocks, TaskId asks, uint32_t group) {
  State& state = states_[group];
  if (!state.listed) list(group);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!runs(asks, i)) continue;
    if (state.need.empty()) {
      for (TaskId t : groups_[group].tasks)
        if (ended_before(clocks.own[i], asks, t) < needed(t, i)) return false;
      continue;
    }
    // Most ranks know the same.
    if (i > 0 && runs(asks, i - 1) && clocks.own[i] == clocks.own[i - 1] &&
        state.need[i] == state.need[i - 1])
      continue;
    const size_t mine = column(asks).value_or(columns_);
    if (mine < columns_ && p_[asks].place < counts_->count(state.need[i], mine)) return false;
    if (!counts_->covers(clocks.own[i], state.need[i], mine)) return false;
  }
  return true;
}

// How many tasks of the stream of `task` have ended, by a row that the task `asks` knows.
int32_t Known::ended_before(uint32_t own, TaskId asks, TaskId task) const {
  return p_[task].sm == p_[asks].sm ? p_[asks].place : counts_->count(own, *column(task));
}

bool Known::ended(const Clocks& clocks, TaskId asks, ir::RankRef where, TaskId task) const {
  const size_t at = *column(task);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!runs(asks, i)) continue;
    for (int rank : ir::resolve(where, static_cast<int>(ranks_[i]), static_cast<int>(world_))) {
      if ((p_[task].ranks >> rank & 1) == 0) continue;
      const auto of = static_cast<size_t>(rank);
      const int32_t count = of == ranks_[i] ? ended_before(clocks.own[i], asks, task)
                                            : counts_->count(counts_->row(clocks.far[i], of), at);
      if (count <= p_[task].place) return false;
    }
  }
  return true;
}

bool Known::all_met() const {
  for (size_t i = 0; i < ranks_.size(); ++i)
    for (size_t rank = 0; rank < world_; ++rank) {
      const auto heard = [&](const auto& stream) {
        return counts_->row(stream->far[i], rank) != SharedCounts::kNothing;
      };
      if (rank != ranks_[i] && std::none_of(streams_.begin(), streams_.end(), heard)) return false;
    }
  return true;
}

// What a task knows that has waited for all of the group.
const Clocks& Known::told(uint32_t group) {
  State& state = states_[group];
  if (state.told) return *state.told;
  state.told = std::make_unique<Clocks>();
  Clocks& told = *state.told;
  told.own.assign(ranks_.size(), SharedCounts::kNothing);
  std::vector<std::vector<uint32_t>>& own = own_rows_;
  own.resize(ranks_.size());
  for (std::vector<uint32_t>& rows : own) rows.clear();
  std::vector<SharedCounts::Least>& themselves = themselves_;
  themselves.clear();
  if (peers_) told.far.assign(ranks_.size(), SharedCounts::kNothing);
  std::vector<bool>& seen = seen_;
  seen.assign(column_of_.size(), false);
  const std::vector<TaskId>& tasks = groups_[group].tasks;
  for (auto t = tasks.rbegin(); t != tasks.rend(); ++t) {
    // The last task of a stream knows all that the earlier ones know.
    const auto sm = static_cast<size_t>(p_[*t].sm);
    if (!after_[index(*t)] || seen[sm]) continue;
    seen[sm] = true;
    const Clocks& after = *after_[index(*t)];
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (own[i].empty() || own[i].back() != after.own[i]) own[i].push_back(after.own[i]);
    if (const auto stream = column(*t)) themselves.push_back({*stream, p_[*t].place + 1});
    // Most know the same of other ranks.
    for (size_t i = 0; i < told.far.size(); ++i)
      if (heard_[i].empty() || heard_[i].back() != after.far[i]) heard_[i].push_back(after.far[i]);
  }
  for (size_t i = 0; i < ranks_.size(); ++i)
    told.own[i] =
        i > 0 && own[i] == own[i - 1] ? told.own[i - 1] : counts_->raised(own[i], themselves);
  for (size_t i = 0; i < told.far.size(); ++i) told.far[i] = counts_->join_lists(heard_[i]);
  for (TaskId t : tasks) forget(t);
  return told;
}

void Known::hear(Clocks& clocks, TaskId task, uint32_t group) {
  const Clocks& heard = told(group);
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (runs(task, i)) join_rank(clocks, heard, i);
}

void Known::join(Clocks& a, const Clocks& b) {
  for (size_t i = 0; i < ranks_.size(); ++i) join_rank(a, b, i);
}

void Known::join_rank(Clocks& a, const Clocks& b, size_t i) {
  a.own[i] = counts_->join_two_rows(a.own[i], b.own[i]);
  if (peers_) a.far[i] = counts_->join(a.far[i], b.far[i]);
}

// Forgets the counts that no clock has any more.
void Known::forget_unused() {
  std::vector<bool> lists(counts_->lists(), false), rows(counts_->rows(), false);
  const auto use = [&](const Clocks& clocks) {
    for (const uint32_t row : clocks.own) rows[row] = true;
    for (const uint32_t list : clocks.far) lists[list] = true;
  };
  for (const auto& stream : streams_) use(*stream);
  for (const auto& after : after_)
    if (after) use(*after);
  for (const State& state : states_) {
    for (const uint32_t need : state.need) rows[need] = true;
    if (state.told) use(*state.told);
  }
  counts_->keep_only(lists, std::move(rows));
  said_ = {};
}

void Known::end(TaskId task, const Clocks& clocks, bool waits) {
  auto& stream = streams_[static_cast<size_t>(p_[task].sm)];
  if (waits) {
    auto now = std::make_shared<Clocks>(clocks);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (runs(task, i)) continue;
      now->own[i] = stream->own[i];
      if (peers_) now->far[i] = stream->far[i];
    }
    stream = std::move(now);
  }
  if (uses_[index(task)] > 0) after_[index(task)] = stream;
}

void Known::forget(TaskId task) {
  if (--uses_[index(task)] == 0) after_[index(task)] = nullptr;
}

void Known::done(uint32_t group) {
  State& state = states_[group];
  if (--groups_[group].uses > 0) return;
  if (!state.told)
    for (TaskId t : groups_[group].tasks) forget(t);
  state = {};
}

void Known::heard_peers(ir::EventId event) {
  if (--receivers_[index(event)] > 0) return;
  for (const Sender& s : senders_[index(event)]) forget(s.task);
}

}  // namespace maco::passes
