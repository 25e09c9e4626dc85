// Which tasks are known to have ended when a task starts: by stream order, by waits, and by what
// peers tell.
//
// A task's vector clock says of every stream how many of its tasks have ended. The tasks are walked
// in Program order, in which dependencies on a rank point forward; of a task that comes later on
// another rank nothing is known. One launch is enough, since on a rank all of a launch precedes the
// next. A rank that skips a task waits for nothing there, so that the task passes on only what
// stream order gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/passes/shared_counts.h"
#include "ir/program.h"

namespace maco::passes {

/// What is known at a place of a stream, rank by rank; ranks that do the same share one.
struct Clocks {
  // For each rank that is followed, a row of shared_counts.h: how many tasks have ended in each of
  // the rank's streams that matter. The entry for the clock's own stream may be out of date.
  std::vector<uint32_t> own;
  /// For each rank that is followed, a list: what peers told. Empty where peers aren't followed.
  std::vector<uint32_t> far;
};

/// Tasks whose ends are asked about together: all that signal an event.
struct Group {
  std::vector<ir::TaskId> tasks;  // ascending
  int64_t uses = 0;               // how often done() will be called
};

/// By event: the tasks that signal it on their own rank, and its waits. Of events of peers none.
std::vector<Group> producers_of_events(const ir::Program& program);

class Known {
 public:
  enum class Peers {
    Ignored,
    Followed,  // by their signals
    /// By their packets as well, which show their own data and nothing else: that what peers had
    /// heard of has ended, but not what it wrote. Of its own tasks a rank hears from itself only.
    Polled,
  };
  /// `asked`: the tasks that has() and ended() will be asked about, besides those of `groups`.
  Known(const ir::Program& program, std::vector<Group> groups, Peers peers);
  Known(const ir::Program& program, std::vector<Group> groups, Peers peers,
        const std::vector<ir::TaskId>& asked);

  /// Makes `clocks` what the task, the next in Program order, knows without waits for local events.
  /// Clocks of tasks before it don't count any more.
  void begin(ir::TaskId task, Clocks& clocks);
  /// Whether every task of the group has ended, on each rank that runs `asks`. A rank that leaves a
  /// task out has it end with what comes before it in its stream.
  bool has(const Clocks& clocks, ir::TaskId asks, uint32_t group);
  /// Whether `asks`, on each rank that runs it, knows that `task`, one of those asked about, has
  /// ended on the ranks that `where` names for it; true of ranks that don't run `task`.
  bool ended(const Clocks& clocks, ir::TaskId asks, ir::RankRef where, ir::TaskId task) const;
  /// Whether every rank has heard of every other so far.
  bool all_met() const;
  /// Adds what the task knows when it has waited for all of the group.
  void hear(Clocks& clocks, ir::TaskId task, uint32_t group);
  /// Adds to `a` what `b` knows.
  void join(Clocks& a, const Clocks& b);
  /// The task has ended. `waits`: it may know more than its stream did.
  void end(ir::TaskId task, const Clocks& clocks, bool waits);
  /// Nobody asks about the group any more, if this is its last use.
  void done(uint32_t group);
  /// A wait for an event of peers is done: one fewer to come.
  void heard_peers(ir::EventId event);
  /// Counts of a rank's streams that were joined one by one so far.
  int64_t joins() const { return counts_->joins(); }

 private:
  struct State {  // of a group
    bool listed = false;
    std::vector<uint32_t> need;  // by rank: a row, how far streams have to be; of large groups
    std::unique_ptr<Clocks> told;
  };
  struct Sender {
    ir::TaskId task;
    ir::RankRef to;
  };

  bool runs(ir::TaskId task, size_t i) const { return p_[task].ranks >> ranks_[i] & 1; }
  bool of_peers(ir::EventId event) const;
  void list(uint32_t group);
  int32_t needed(ir::TaskId task, size_t i) const;
  int32_t ended_before(uint32_t own, ir::TaskId asks, ir::TaskId task) const;
  const Clocks& told(uint32_t group);
  void forget(ir::TaskId task);
  void ask_peers(ir::TaskId task, size_t i, Clocks& clocks);
  const Clocks* sent_to(ir::EventId event, size_t source, int rank, ir::TaskId& sender) const;
  void receive(Clocks& clocks, size_t i, const Clocks& sent, ir::TaskId sender, size_t source);
  uint32_t said_of_itself(const Clocks& sent, ir::TaskId sender, size_t from);
  void join_rank(Clocks& a, const Clocks& b, size_t i);
  void forget_unused();
  // Where the stream of the task's SM stands in clocks; none if nobody asks about its tasks.
  std::optional<size_t> column(ir::TaskId task) const;

  const ir::Program& p_;
  const size_t world_;
  std::vector<int32_t> column_of_;  // by SM; negative: none
  size_t columns_ = 0;
  const bool peers_, polled_;
  bool rotates_;  // rotating the ranks maps what they do to itself: rank 0 stands for all
  std::vector<size_t> ranks_;  // the ranks that are followed
  std::vector<Group> groups_;
  std::vector<State> states_;
  std::vector<std::shared_ptr<const Clocks>> streams_;
  // By task, while it may still be asked for: what the task's stream knew when the task had ended,
  // but for the count of that stream.
  std::vector<std::shared_ptr<const Clocks>> after_;
  std::vector<uint32_t> uses_;                       // by task: groups and events that will ask
  std::vector<std::optional<ir::TaskId>> previous_;  // by task: in its stream
  std::vector<bool> absent_;                         // by task: may find no rows; empty: none does
  std::vector<std::vector<Sender>> senders_;         // by event of peers
  std::vector<int64_t> receivers_;                   // by event of peers: waits to come
  std::unique_ptr<SharedCounts> counts_;
  std::vector<std::vector<uint32_t>> heard_;  // rows or lists that are to be joined, by rank
  // For told().
  std::vector<std::vector<uint32_t>> own_rows_;  // by rank
  std::vector<SharedCounts::Least> themselves_;
  std::vector<bool> seen_;  // by SM
  // What a task said last of its own rank, itself among it.
  struct Said {
    ir::TaskId sender{};
    size_t from = 0;
    uint32_t row = SharedCounts::kNothing;
  };
  Said said_;
};

}  // namespace maco::passes
