// The tasks of one launch on all ranks, on one clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/program.h"
#include "runtime/host/profile.h"

namespace maco::runtime {

/// What ended a wait: the last task that sent for it.
struct Arrival {
  ir::EventId event{};
  int rank = 0;  // of the sender
  ir::TaskId task{};
  int64_t sent = 0;  // by the sender's stamps; may be after `seen` by the clocks' error
  int64_t seen = 0;  // when the waiting task had it
};

/// Bytes of payload that a task of `rank` touches in the region, for the dims' maxima.
int64_t region_bytes(const ir::Program& program, const ir::Region& region, int rank);

/// The timeline of a synced Program, in nanoseconds since the launch's first stamp. Keeps a
/// reference to the Program.
class Timeline {
 public:
  /// `stamps`: of each rank. Returns nothing, with a status, if they don't fit the Program.
  static std::optional<Timeline> make(const ir::Program& program,
                                      const std::vector<RankStamps>& stamps, Status& status);

  const ir::Program& program() const { return *program_; }
  int world() const { return static_cast<int>(program_->world); }
  /// If the task doesn't run there, only `stored` and `signalled` have a meaning.
  const TaskTimes& at(int rank, ir::TaskId task) const {
    return times_[static_cast<size_t>(rank)][ir::index(task)];
  }
  bool runs(int rank, ir::TaskId task) const { return (*program_)[task].ranks >> rank & 1; }
  /// When the last task had signalled.
  int64_t end() const { return end_; }

  /// How the ranks' clocks were aligned.
  enum class Clocks : uint8_t {
    Shared,   // they are one clock
    Signals,  // no signal is seen before it is sent; wrong by `clock_error` at most
    Bounded,  // likewise, but between some ranks signals go one way only
    Unknown,  // some ranks exchange no signals: all are taken to begin at once
  };
  Clocks clocks() const { return clocks_; }
  int64_t clock_error() const { return clock_error_; }

  /// One arrival for each wait of the task for something of this launch.
  std::vector<Arrival> arrivals(int rank, ir::TaskId task) const;
  /// The task before it on the same CTA.
  std::optional<ir::TaskId> before(ir::TaskId task) const;

 private:
  struct Sender {
    ir::TaskId task{};
    ir::RankRef to;
  };
  Timeline() = default;
  bool sends(const Sender& sender, ir::EventKind kind, int source, int rank) const;
  // The last of an event's senders on `source` whose signal reaches `rank`.
  std::optional<Arrival> last(ir::EventId event, int source, int rank) const;
  void align(const std::vector<RankStamps>& stamps);
  void shift(int rank, int64_t by);
  // The least that must be added to the times of rank [to], relative to what is added to those of
  // [from].
  std::vector<std::vector<std::optional<int64_t>>> bounds() const;

  const ir::Program* program_ = nullptr;
  std::vector<std::vector<ir::TaskId>> streams_;
  std::vector<std::vector<TaskTimes>> times_;               // by rank and task
  std::vector<std::vector<Sender>> senders_;                // by event
  std::vector<std::vector<std::optional<Arrival>>> local_;  // by rank and local event: `last`
  Clocks clocks_ = Clocks::Shared;
  int64_t clock_error_ = 0, end_ = 0;
};

}  // namespace maco::runtime
