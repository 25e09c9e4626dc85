// The processes that run the ranks of one kernel, one a rank, on one host.
//
// They meet at a Unix socket whose name follows from their environment: rank 0 listens, the others
// connect. Nothing but small messages goes over it; tensors and slots lie in memory that all map.
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

/// Who a process is, as its environment says.
struct GroupPlace {
  int rank = 0, size = 1;
  std::string name;  // the same for all of a group, another for every other on this host
  /// What groups of the same processes have in common, or "".
  std::string processes = {};
};

/// RANK and WORLD_SIZE, as torchrun sets them, or OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE of
/// Open MPI, or PMI_RANK and PMI_SIZE; the name is made of MASTER_ADDR and MASTER_PORT, or of what
/// mpirun calls its job. Nothing where none of these are set, or the group has one process. A
/// failure if some are set and others of the same launcher aren't, if one is no such number, if
/// they contradict each other, or tell of several hosts.
std::optional<GroupPlace> group_from_environment(Status& status);
/// The variables that it reads.
std::vector<std::string> group_variables();

/// Not thread safe, but for gone(). All of the group make all other calls in one order.
class Group {
 public:
  /// What a process asks of the others; all must ask the same.
  enum class Call : uint32_t { Exchange, Agree, Files, Outcome, Values };
  /// For ranks of which one computes a reference, say.
  static constexpr uint64_t kPatienceMs = 30 * 60 * 1000;
  /// Meets the others: within `timeout_ms` all have come, or the failure says who is missing, or
  /// which two processes say that they are one rank. `told`: what all must have been told alike;
  /// what differs is in everybody's failure, with the values of all ranks.
  static std::unique_ptr<Group> join(const GroupPlace& place, const Settings& told,
                                     uint64_t timeout_ms, Status& status);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const std::string& processes() const { return place_.processes; }
  /// all[r] is what rank r gave, when all have called it. A failure, from then on of every call, if
  /// a process is gone, has been stopped for some seconds, or says nothing for so long.
  Status exchange(const std::string& mine, std::vector<std::string>& all,
                  uint64_t patience_ms = kPatienceMs, Call call = Call::Exchange);
  Status meet();
  /// The failures of all who have one: one line each, a common one once.
  Status agree(const Status& mine);
  /// all[r] is an open file of this process that is the one rank r gave; the caller's to close. As
  /// exchange, otherwise.
  Status exchange_files(int mine, std::vector<int>& all);
  /// Waits up to `wait_ms` for a process to end that this one is connected with (rank 0 with all,
  /// the others with rank 0): its rank, or -1. From any thread, also while another call runs. Ends
  /// early when file `wake` has something to read.
  int gone(int wait_ms, int wake = -1) const;
  /// Whether nothing can be exchanged any more.
  bool broken() const { return !broken_.empty(); }
  /// Whether this rank is the one that reports what all know.
  bool speaks() const { return place_.rank == 0 || lost_zero_; }

 private:
  explicit Group(GroupPlace place) : place_(std::move(place)) {}
  /// No other process of the group can have this rank from now on. Who has it may end meanwhile,
  /// for 5 s at most.
  Status take_seat(uint64_t timeout_ms);
  /// A failure if another process has tried to take this one's.
  Status check_seat() const;
  Status listen(const Settings& told, uint64_t timeout_ms);
  Status connect(const Settings& told, uint64_t timeout_ms);
  /// exchange, with or without a file of each.
  Status exchange(Call call, const std::string& mine, int file, std::vector<std::string>& all,
                  std::vector<int>* files, uint64_t patience_ms);
  Status fail(std::string why);
  /// Tells the others why, who can still hear it.
  Status fail_all(std::string why);

  GroupPlace place_;
  int seat_ = -1;                 // a socket whose name only one process of this rank can have
  std::vector<int> sockets_;      // of rank 0: by rank, its own -1; of others: rank 0's
  std::vector<pid_t> processes_;  // likewise: at the other ends
  std::string broken_;            // why nothing can be exchanged any more
  bool lost_zero_ = false;
};

}  // namespace maco::runtime
