// A compiled kernel with its memory on all ranks of this process, on some device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/manifest.h"
#include "runtime/status.h"

namespace maco {
// runtime/device/abi.cuh, for host code through runtime/host/abi.h
struct Report;
struct Variables;
}  // namespace maco

namespace maco::runtime {

class Group;        // runtime/host/group.h
struct RankStamps;  // runtime/host/profile.h

struct SessionOptions {
  uint64_t timeout_ms = 30000;  // without progress of any rank
  uint32_t first_epoch = 1;     // of the first launch; tests start near 2^32
  int ranks_per_gpu = 1;        // CUDA only
  /// CUDA only: the GPU of this process's first rank; if negative, the rank decides.
  int gpu = -1;
  /// Whether to allocate zeroed memory for all tensors. Otherwise each tensor is given memory by
  /// Session::bind or allocate before the first launch.
  bool allocate_tensors = true;
  // CPU only:
  std::optional<uint64_t> jitter;  // real threads, with random delays from this seed
  std::optional<uint64_t> replay;  // one thread, fibres, in an order given by this seed
  // Checks each access of a task against its declared regions (needs `regions`).
  bool check_access = false;

  // If not 0: how many tasks the kernel has, which is compiled to stamp them (Session::stamps).
  int64_t profiled_tasks = 0;

  /// The processes that run the ranks, one rank each; null: this process runs all ranks. Must
  /// outlive the session. All processes open the session, and call launch, enqueue, wait and bench,
  /// in one order. A failure of any of these calls except enqueue is a failure of all.
  Group* group = nullptr;
  /// CUDA only: the provider of memory that all ranks reach (symmetric_providers); "": the first
  /// that works.
  std::string peer_memory{};

  bool verbose = false;  // reports on standard error what it does (compiling, cache hits)
  /// Called with the name of each step that may take long while a session is opened.
  std::function<void(std::string_view)> progress{};
  void tell(std::string_view what) const {
    if (progress) progress(what);
  }
};

/// Values of dims and scalars for one launch, by name; a missing dim has its maximum.
using LaunchValues = std::map<std::string, int64_t>;
/// The addresses of a dim or scalar in memory: one for each rank of this process, in its device's
/// memory. The launch reads it when its turn has come.
struct LaunchAddress {
  std::vector<const void*> at;
  int bytes = 4;          // of the integer; or 8
  bool from_end = false;  // negative values count from the end of the range
};
using LaunchAddresses = std::map<std::string, LaunchAddress>;

/// A tensor's address in one launch, in place of the bound one: one address for each rank of this
/// process.
struct TensorPlace {
  size_t tensor = 0;  // index into Manifest::tensors
  std::span<void* const> at;
};
using TensorPlaces = std::span<const TensorPlace>;

/// The failure of a launch that its caller stopped.
inline constexpr const char* kStoppedByCaller = "the launch was stopped by its caller";

/// The ranks of this process.
struct RanksHere {
  int first = 0, count = 0;
  bool has(int rank) const { return rank >= first && rank < first + count; }
};

/// The alignment of tensors, in bytes, that vectors of device code and tensor maps need.
inline constexpr size_t kTensorAlignment = 16;

/// Fills tensors of a session, beside other threads' writers and while nothing else uses the
/// session. Used only on the thread that made it.
class TensorWriter {
 public:
  /// Waits for everything that was written.
  virtual ~TensorWriter() = default;
  /// Memory of the size with which the writer was made, to be filled and written from. There are
  /// two such pieces, used in turn: waits for what was written from this one before.
  virtual Status staging(std::byte*& memory) = 0;
  /// Copies from that memory into a tensor with memory on a rank of this process; returns before
  /// the copy has ended.
  virtual Status write(int rank, size_t tensor, size_t offset, const std::byte* from,
                       size_t bytes) = 0;
  /// Waits for everything that was written; fails if any of it did.
  virtual Status finish() = 0;
};

/// Not thread safe. The factory allocates what the kernel needs for itself and, unless the options
/// say otherwise, memory for all tensors. Afterwards there are only copies and launches.
class Session {
 public:
  virtual ~Session() = default;
  virtual const ir::Manifest& manifest() const = 0;
  /// Tensors of other ranks can't be reached from here.
  virtual RanksHere here() const { return {0, static_cast<int>(manifest().world)}; }
  bool is_here(int rank) const { return here().has(rank); }
  /// Places tensor `tensor` (index into manifest().tensors) of `rank` in memory of the caller's
  /// from the next launch on. The memory must be on the rank's device, aligned to kTensorAlignment,
  /// as large as the tensor, and exist until the session ends or other memory is bound. Not while
  /// launching.
  virtual Status bind(int rank, size_t tensor, void* memory) = 0;
  /// Gives the tensor zeroed memory of the session's own, unless it has some.
  virtual Status allocate(int rank, size_t tensor) = 0;
  /// The tensor's address; nullptr if it has none yet.
  virtual void* address(int rank, size_t tensor) const = 0;
  /// Copies `bytes` bytes to a tensor with memory, from byte `offset` on. Not while launching.
  virtual Status write_at(int rank, size_t tensor, size_t offset, const void* data,
                          size_t bytes) = 0;
  virtual Status read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) = 0;
  /// A writer with `staging` bytes of staging memory, for any thread. Null with an ok status:
  /// tensors lie in ordinary memory, which any thread may fill.
  virtual std::unique_ptr<TensorWriter> make_writer(size_t staging, Status& status) {
    static_cast<void>(staging);
    status = {};
    return nullptr;
  }
  /// As write_at and read_at, from byte 0 on.
  Status write(int rank, size_t tensor, const void* data, size_t bytes) {
    return write_at(rank, tensor, 0, data, bytes);
  }
  Status read(int rank, size_t tensor, void* data, size_t bytes) {
    return read_at(rank, tensor, 0, data, bytes);
  }
  /// Runs all ranks once and waits for them. If a rank stops early, all do. The status then says
  /// which wait expired, on which rank, SM, task and event, and what was expected and seen. The
  /// session can launch again afterwards (counters and slots are reset).
  virtual Status launch(const LaunchValues& values) = 0;
  /// Puts a launch of all ranks on streams of the caller's, rank r's on streams[r], or without
  /// `streams` on the session's own, and returns. The launch comes after what was enqueued on the
  /// stream before. If it fails, the next call here says so. `streams`: one of the device's
  /// (CUstream) for each rank of this process; if they are being captured, the launch becomes part
  /// of their graphs. On the CPU the launch has run when this returns. `places`, which check_places
  /// has checked: tensors that this launch has at other addresses; a captured launch always has
  /// them there.
  virtual Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                         std::span<void* const> streams, TensorPlaces places) = 0;
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams) {
    return enqueue(values, addresses, streams, {});
  }
  /// Waits for everything that was enqueued. Fails if any of it failed, or any launch of a captured
  /// graph that has ended.
  virtual Status wait() = 0;
  /// Whether all that was enqueued has ended; in a group, on this process's rank.
  virtual Status ended(bool& all) = 0;
  /// Ends a launch for which another thread waits, on all ranks, with a failure; does nothing if no
  /// thread waits. May be called from any thread.
  virtual void stop() = 0;
  /// The median over `launches` launches, after warm-up, of the slowest rank's time in microseconds
  /// (device clock on GPUs).
  virtual Status bench(const LaunchValues& values, int launches, double& median_us) = 0;
  /// The stamps of each rank's last launch; after bench(), of the last measured launch. Fails
  /// without SessionOptions::profiled_tasks. Not while launching. All processes of a group call it,
  /// and get the stamps of all ranks.
  virtual Status stamps(std::vector<RankStamps>& ranks) = 0;
};

/// Checks that `rank`, `tensor` and `bytes` bytes of it from `offset` on exist.
Status check_range(const ir::Manifest& manifest, int rank, size_t tensor, size_t offset = 0,
                   size_t bytes = 0);
/// Checks that memory at this address can be a tensor's.
Status check_binding(const ir::Manifest& manifest, int rank, size_t tensor, const void* memory);
/// Fails, naming the first tensor without memory, neither bound nor in `places`.
Status check_bound(const Session& session, TensorPlaces places = {});
/// Places params and states of `own` where `other`, which has the same ranks here, has those of the
/// same name and kind, if they have memory. Fails before anything is bound if types or shapes
/// differ.
Status share(Session& own, const Session& other);
/// Gives memory to all tensors of this process's ranks that have none.
Status allocate_all(Session& session);
/// Checks that a launch can have tensors there: they must exist, come once each, and have a valid
/// address for each rank.
Status check_places(const Session& session, TensorPlaces places);
/// Checks that there is a stream for each rank of this process, or none at all.
Status check_streams(const Session& session, size_t streams);
/// Fails, naming the dim or scalar, if one lies in memory of a tensor that the launch writes: each
/// CTA reads it at its own time.
Status check_addresses(const Session& session, const LaunchAddresses& addresses,
                       TensorPlaces places = {});
/// A dim or scalar of a launch: at an address, as in LaunchAddress, or `value`.
struct LaunchVariable {
  const void* at = nullptr;
  int64_t value = 0;
  int bytes = 4;
  bool from_end = false;
};
/// The value that a launch would find at an address that it can read, on the rank of this process
/// that is `here` places behind the first.
int64_t read_integer(const ir::Manifest& manifest, const std::string& name,
                     const LaunchAddress& address, size_t here);
/// The dims, then the scalars, of `rank`, in the manifest's order. Numbers are checked against
/// their ranges; every scalar must be given.
Status list_variables(const ir::Manifest& manifest, const LaunchValues& values,
                      const LaunchAddresses& addresses, int rank, RanksHere here,
                      std::vector<LaunchVariable>& out);
/// Fails if the processes can't run the kernel's ranks in this way.
Status check_group(const Group& group, const ir::Manifest& manifest, const SessionOptions& options);
/// The variables in the form for a launch that numbers itself.
Variables given_to_launches(const std::vector<LaunchVariable>& variables);
/// Fails if there are more variables than such a launch takes.
Status check_variables(const ir::Manifest& manifest);
/// Fails if the kernel has more launch values than fit.
Status check_values(const ir::Manifest& manifest);
/// Checks dims and scalars as list_variables does, evaluates Manifest::values for `rank`, and
/// checks them against their ranges.
Status evaluate_values(const ir::Manifest& manifest, const LaunchValues& values, int rank,
                       std::vector<int32_t>& out);
/// How many launches may run before maco_reset must: after that, packets may have a flag that
/// earlier launches left behind.
int64_t launches_between_resets(const ir::Manifest& manifest);
/// The middle value, or the mean of the two in the middle; there must be one.
double median(std::vector<double> values);
/// The report, among those of a rank's CTAs, from which the others follow: an index out of range,
/// else the first wait in the Program's order, in which no task waits for a later one (`stopped_by`
/// is 0 if the deadline of any of them passed). An empty report if no CTA has one.
Report cause_of(std::span<const Report> ctas);
/// Whether any of these reports isn't empty.
bool any_stopped(std::span<const Report> reports);
/// The sentence for a stopped rank, with the graph's names; empty if the report is. `timeout_ms`: 0
/// if unknown.
std::string explain_report(const ir::Manifest& manifest, int rank, const Report& report,
                           uint64_t timeout_ms = 0);
/// One line for each rank that has a report (reports[r] is rank r's), causes before consequences.
std::string explain_reports(const ir::Manifest& manifest, std::span<const Report> reports,
                            uint64_t timeout_ms = 0);
/// The task that stopped first; nothing if none did, or its report isn't complete.
std::optional<Stopped> first_stopped(const ir::Manifest& manifest, std::span<const Report> reports);

}  // namespace maco::runtime
