// The processes that run the ranks of one kernel, one rank each, on one host.
//
// They meet at a Unix socket whose name follows from their environment: rank 0 listens, the others
// connect. Only small messages go through it; tensors and slots lie in memory that all processes
// map.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/settings.h"
#include "runtime/status.h"

namespace maco::runtime {

/// A process's place, by its environment.
struct GroupPlace {
  int rank = 0, size = 1;
  std::string name;  // the same for all of a group, different from any other on this host
  /// The name that groups of the same processes share, or "".
  std::string processes = {};
};

/// Reads RANK and WORLD_SIZE, as torchrun sets them, or OMPI_COMM_WORLD_RANK and
/// OMPI_COMM_WORLD_SIZE of Open MPI, or PMI_RANK and PMI_SIZE. The name is made from MASTER_ADDR
/// and MASTER_PORT, or from mpirun's name for its job. Returns nothing if none of these are set, or
/// the group has one process. Fails if only some variables of a launcher are set, if one is no
/// valid number, if they contradict each other, or if they name several hosts.
std::optional<GroupPlace> group_from_environment(Status& status);
/// The variables that group_from_environment reads.
std::vector<std::string> group_variables();

/// Not thread safe, except for gone(). All processes of the group make all other calls in one
/// order.
class Group {
 public:
  /// What a process asks of the others; all must ask the same.
  enum class Call : uint32_t { Exchange, Agree, Files, Outcome, Values };
  static constexpr int kMostRanks = 64;
  /// Long enough for ranks that wait while one computes a reference.
  static constexpr uint64_t kPatienceMs = 30 * 60 * 1000;
  /// Meets the other processes. Fails if some haven't come within `timeout_ms`, saying which, or if
  /// two processes claim one rank. `told`: the settings that must be the same everywhere;
  /// differences are in every process's failure, with the values of all ranks.
  static std::unique_ptr<Group> join(const GroupPlace& place, const Settings& told,
                                     uint64_t timeout_ms, Status& status);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const std::string& processes() const { return place_.processes; }
  /// all[r] is what rank r gave, once all have called it. Fails, and so do all later calls, if a
  /// process is gone, has been stopped for some seconds, or says nothing for `patience_ms`.
  Status exchange(const std::string& mine, std::vector<std::string>& all,
                  uint64_t patience_ms = kPatienceMs, Call call = Call::Exchange);
  Status meet();
  /// The failures of all processes that have one: one line each, a common failure only once.
  Status agree(const Status& mine);
  /// all[r] is an open file of this process, the same file that rank r gave; the caller closes it.
  /// Otherwise as exchange.
  Status exchange_files(int mine, std::vector<int>& all);
  /// Waits up to `wait_ms` for a connected process to end (rank 0 is connected with all, the others
  /// with rank 0). Returns its rank, or -1. May be called from any thread, also while another call
  /// runs. Ends early when file `wake` has something to read.
  int gone(int wait_ms, int wake = -1) const;
  /// Whether nothing can be exchanged any more.
  bool broken() const { return !broken_.empty(); }
  /// Whether this rank is the one that reports what all know.
  bool speaks() const { return place_.rank == 0 || lost_zero_; }

 private:
  explicit Group(GroupPlace place) : place_(std::move(place)) {}
  /// From now on no other process of the group can have this rank. Its current holder may end
  /// meanwhile, for at most 5 s.
  Status take_seat(uint64_t timeout_ms);
  /// Fails if another process has tried to take this one's seat.
  Status check_seat() const;
  Status listen(const Settings& told, uint64_t timeout_ms);
  Status connect(const Settings& told, uint64_t timeout_ms);
  /// exchange, with or without a file from each process.
  Status exchange(Call call, const std::string& mine, int file, std::vector<std::string>& all,
                  std::vector<int>* files, uint64_t patience_ms);
  /// The same on ranks other than 0, which ask rank 0, and on rank 0, which gathers and answers.
  Status ask(Call call, const std::string& mine, int file, std::vector<std::string>& all,
             std::vector<int>* files, uint64_t patience_ms);
  Status gather(Call call, const std::string& mine, int file, std::vector<std::string>& all,
                std::vector<int>* files, uint64_t patience_ms);
  Status fail(std::string why);
  /// Tells the other processes why, if they can still hear it.
  Status fail_all(std::string why);

  GroupPlace place_;
  int seat_ = -1;                 // a socket whose name only one process of this rank can have
  std::vector<int> sockets_;      // at rank 0: by rank, its own -1; elsewhere: rank 0's
  std::vector<pid_t> processes_;  // likewise: the processes at the other ends
  std::string broken_;            // why nothing can be exchanged any more
  bool lost_zero_ = false;
};

}  // namespace maco::runtime
