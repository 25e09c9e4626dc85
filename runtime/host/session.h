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
  /// CUDA only: the GPU of the first rank of this process; less than 0: its number follows from the
  /// rank.
  int gpu = -1;
  /// Memory for all tensors, zeroed; else each is given some by Session::bind or allocate before
  /// the first launch.
  bool allocate_tensors = true;
  // CPU only:
  std::optional<uint64_t> jitter;  // real threads, with random delays from this seed
  std::optional<uint64_t> replay;  // one thread, fibres, in an order given by this seed
  // Checks each access of a task against its declared regions (needs `regions`).
  bool check_access = false;

  // Where it isn't 0: the kernel is compiled to stamp its tasks (Session::stamps), of which it has
  // so many.
  int64_t profiled_tasks = 0;

  /// The processes that run the ranks, of which this one runs its own; null: it runs all. It has to
  /// outlive the session. All processes open the session, and call launch, enqueue, wait and bench,
  /// in one order; a failure of any of these calls but enqueue is one of all.
  Group* group = nullptr;
  /// CUDA only: who provides memory that all ranks reach (symmetric_providers); "": the first that
  /// serves.
  std::string peer_memory{};

  bool verbose = false;  // says on standard error what it does (compiling, cache hits)
  /// Told what begins, of what may take long while a session is opened.
  std::function<void(std::string_view)> progress{};
  void tell(std::string_view what) const {
    if (progress) progress(what);
  }
};

/// Values of dims and scalars for one launch, by name; a dim that is missing has its maximum.
using LaunchValues = std::map<std::string, int64_t>;
/// One that lies in memory: one address a rank of this process, in memory of its device, which the
/// launch reads when its turn has come.
struct LaunchAddress {
  std::vector<const void*> at;
  int bytes = 4;          // or 8, of the integer
  bool from_end = false;  // a negative one counts from the end of the range
};
using LaunchAddresses = std::map<std::string, LaunchAddress>;

/// Where a tensor lives in one launch, instead of where it is bound: one address a rank of this
/// process.
struct TensorPlace {
  size_t tensor = 0;  // index into Manifest::tensors
  std::span<void* const> at;
};
using TensorPlaces = std::span<const TensorPlace>;

/// What a launch that was stopped so failed of.
inline constexpr const char* kStoppedByCaller = "the launch was stopped by its caller";

/// The ranks of this process.
struct RanksHere {
  int first = 0, count = 0;
  bool has(int rank) const { return rank >= first && rank < first + count; }
};

/// Of tensors, in bytes: what vectors of device code and tensor maps need.
inline constexpr size_t kTensorAlignment = 16;

/// Fills tensors of a session, beside those of other threads and while nothing else uses it. Of the
/// thread that made it.
class TensorWriter {
 public:
  /// Waits for what was written.
  virtual ~TensorWriter() = default;
  /// Memory of as many bytes as it was made with, to be filled and written from. There are two of
  /// these, in turn: waits for what was written from this one before.
  virtual Status staging(std::byte*& memory) = 0;
  /// Copies from that memory into a tensor of a rank of this process that lives somewhere, and
  /// returns before it has.
  virtual Status write(int rank, size_t tensor, size_t offset, const std::byte* from,
                       size_t bytes) = 0;
  /// Waits for all that was written; a failure of any of it.
  virtual Status finish() = 0;
};

/// Not thread safe. The factory allocates what the kernel needs for itself and, unless the options
/// say otherwise, memory for all tensors; afterwards there are only copies and launches.
class Session {
 public:
  virtual ~Session() = default;
  virtual const ir::Manifest& manifest() const = 0;
  /// Tensors of others can't be reached from here.
  virtual RanksHere here() const { return {0, static_cast<int>(manifest().world)}; }
  bool is_here(int rank) const { return here().has(rank); }
  /// Lets tensor `tensor` (index into manifest().tensors) of `rank` live in memory of the caller's
  /// from the next launch on: of the rank's device, aligned to kTensorAlignment, as large as the
  /// tensor, there until the session ends or another is bound. Not while launching.
  virtual Status bind(int rank, size_t tensor, void* memory) = 0;
  /// Gives it zeroed memory of the session's own, unless it has some.
  virtual Status allocate(int rank, size_t tensor) = 0;
  /// Where it lives; nullptr: nowhere yet.
  virtual void* address(int rank, size_t tensor) const = 0;
  /// Copies `bytes` bytes of a tensor, which lives somewhere, from byte `offset` on. Not while it
  /// launches.
  virtual Status write_at(int rank, size_t tensor, size_t offset, const void* data,
                          size_t bytes) = 0;
  virtual Status read_at(int rank, size_t tensor, size_t offset, void* data, size_t bytes) = 0;
  /// A writer with so many bytes of staging memory, from any thread. Null with an ok status:
  /// tensors lie in ordinary memory, which any thread may fill.
  virtual std::unique_ptr<TensorWriter> make_writer(size_t staging, Status& status) {
    static_cast<void>(staging);
    status = {};
    return nullptr;
  }
  /// The same of the first.
  Status write(int rank, size_t tensor, const void* data, size_t bytes) {
    return write_at(rank, tensor, 0, data, bytes);
  }
  Status read(int rank, size_t tensor, void* data, size_t bytes) {
    return read_at(rank, tensor, 0, data, bytes);
  }
  /// Runs all ranks once and waits for them. If a rank stops early, all do: the status tells which
  /// wait expired, on which rank, SM, task and event, what was expected and seen. The session can
  /// launch again afterwards (counters and slots are reset).
  virtual Status launch(const LaunchValues& values) = 0;
  /// Puts a launch of all ranks on streams of the caller's, rank r's on streams[r], or if there are
  /// none on the session's own, and returns: what was enqueued before on a stream comes before, and
  /// a launch that fails says so at the next call here. `streams`: one of the device's (CUstream) a
  /// rank of this process; if they are being captured, the launch becomes part of their graphs. The
  /// CPU runs it before this returns. `places`, which check_places has seen: tensors that this
  /// launch has elsewhere; one that is captured always.
  virtual Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                         std::span<void* const> streams, TensorPlaces places) = 0;
  Status enqueue(const LaunchValues& values, const LaunchAddresses& addresses,
                 std::span<void* const> streams) {
    return enqueue(values, addresses, streams, {});
  }
  /// Waits for all that was enqueued; a failure of any of it, and of launches of captured graphs
  /// that have ended.
  virtual Status wait() = 0;
  /// Whether all of it has ended, in a group on this process's rank.
  virtual Status ended(bool& all) = 0;
  /// Ends a launch that another thread waits for, on all ranks, with a failure; does nothing if
  /// none does. From any thread.
  virtual void stop() = 0;
  /// Median, over `launches` launches after warm-up, of the slowest rank's time in microseconds
  /// (device clock on GPUs).
  virtual Status bench(const LaunchValues& values, int launches, double& median_us) = 0;
  /// The stamps of each rank's last launch, of a bench the last it measured. Fails without
  /// SessionOptions::profiled_tasks. Not while launching. All of a group call it, and get those of
  /// all its ranks.
  virtual Status stamps(std::vector<RankStamps>& ranks) = 0;
};

/// Whether `rank`, `tensor` and so many bytes of it are there, from byte `offset` on.
Status check_range(const ir::Manifest& manifest, int rank, size_t tensor, size_t offset = 0,
                   size_t bytes = 0);
/// Whether memory at this address can be a tensor's.
Status check_binding(const ir::Manifest& manifest, int rank, size_t tensor, const void* memory);
/// A failure that names the first tensor that lives nowhere, neither bound nor in `places`.
Status check_bound(const Session& session, TensorPlaces places = {});
/// Whether tensors can be there in a launch: known ones, each once, an address a rank that it can
/// have.
Status check_places(const Session& session, TensorPlaces places);
/// A failure that names a dim or scalar in memory of a tensor that the launch writes: its CTAs look
/// at it each in their own time.
Status check_addresses(const Session& session, const LaunchAddresses& addresses,
                       TensorPlaces places = {});
/// A dim or scalar of a launch: at an address, as of LaunchAddress, or `value`.
struct LaunchVariable {
  const void* at = nullptr;
  int64_t value = 0;
  int bytes = 4;
  bool from_end = false;
};
/// What a launch of a rank of this process, the one that is `here` places behind the first, would
/// find at an address that it can read.
int64_t read_integer(const ir::Manifest& manifest, const std::string& name,
                     const LaunchAddress& address, size_t here);
/// Those of `rank`, dims and then scalars, in the manifest's order. Numbers are checked against
/// their ranges; every scalar must be given.
Status list_variables(const ir::Manifest& manifest, const LaunchValues& values,
                      const LaunchAddresses& addresses, int rank, RanksHere here,
                      std::vector<LaunchVariable>& out);
/// A failure if the processes can't run the kernel's ranks so.
Status check_group(const Group& group, const ir::Manifest& manifest, const SessionOptions& options);
/// As a launch takes them that numbers itself.
Variables given_to_launches(const std::vector<LaunchVariable>& variables);
/// A failure if there are more than such a launch takes.
Status check_variables(const ir::Manifest& manifest);
/// Checks dims and scalars as list_variables does, evaluates Manifest::values for `rank`, and
/// checks them against their ranges.
Status evaluate_values(const ir::Manifest& manifest, const LaunchValues& values, int rank,
                       std::vector<int32_t>& out);
/// After so many launches packets may have a flag that others left behind; maco_reset comes before.
int64_t launches_between_resets(const ir::Manifest& manifest);
/// The middle value, or the mean of the two in the middle; there must be one.
double median(std::vector<double> values);
/// Of the reports of a rank's CTAs the one that the others follow from: an index out of range, else
/// the wait that is first in the Program's order, in which no task waits for a later one
/// (`stopped_by` 0 if the deadline of any of them passed). An empty one if no CTA has a report.
Report cause_of(std::span<const Report> ctas);
/// The sentence for a stopped rank, in the names of the graph; empty if the report is.
/// `timeout_ms`: 0 if not known.
std::string explain_report(const ir::Manifest& manifest, int rank, const Report& report,
                           uint64_t timeout_ms = 0);
/// One line for each rank that has a report (reports[r] is rank r's), causes before consequences.
std::string explain_reports(const ir::Manifest& manifest, std::span<const Report> reports,
                            uint64_t timeout_ms = 0);
/// What stopped first of them; nothing if none did, or its report isn't complete.
std::optional<Stopped> first_stopped(const ir::Manifest& manifest, std::span<const Report> reports);

}  // namespace maco::runtime
