// A kernel with its memory on all ranks, or the one, of this process, ready to run.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "maco/kernel.h"
#include "maco/result.h"

namespace maco {

enum class Device {
  Cuda,  // rank r runs on GPU r / ranks_per_gpu; the code comes from NVRTC or the cache of cubins
  Cpu,   // ranks and SMs are threads of this process; the code comes from a C++ compiler or a cache
};

struct SessionOptions {
  Device device = Device::Cuda;
  int ranks_per_gpu = 1;
  /// How long a launch may go on without progress of any rank before it is stopped.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Cpu: tasks of all ranks take turns in an order that this seed decides, always the same.
  std::optional<uint64_t> order = {};
  /// The ranks run in a process each, and this one runs the rank that its environment names, as
  /// torchrun and mpirun do (docs/running.md). All of them open their sessions in one order, each
  /// with the kernel that the others have, call run, launch, wait and bench in one order, and close
  /// their sessions in one. What a launch that wasn't waited for came to, wait says on all of them;
  /// its values must be the same everywhere, which only run and bench check. Memory of other ranks
  /// can't be reached from here; streams and addresses of values are given for the rank of this
  /// process alone. A process that ends early fails the launches of the others. On Cuda the rank's
  /// GPU is rank / ranks_per_gpu of those that the process sees, or the only one.
  bool process_a_rank = false;
  /// With process_a_rank: which rank this process runs, of as many processes as the kernel has
  /// ranks, which meet under the name `group`: the same for all of them, another for every other
  /// group on this host. Sessions of one group are opened in one order, of several in any. -1: the
  /// environment names the rank, and `group` is empty.
  int rank = -1;
  std::string group = {};
  /// Cuda, with process_a_rank: the GPU of this process's rank, by its number in this process. -1:
  /// as process_a_rank says.
  int gpu = -1;
  /// Cuda: the memory that ranks send each other by: "" (peer access in one process, CUDA's virtual
  /// memory between processes), "nccl" (windows of NCCL 2.28 or later), or "nvshmem" (its symmetric
  /// heap; a process a rank).
  std::string peer_memory = {};
  /// Told what begins, of what may take seconds while a session is opened ("compiling the kernel
  /// with NVRTC"); "" at the end. Called on the thread that opens it.
  std::function<void(std::string_view)> progress = {};
  /// Compiles the kernel so that it stamps its tasks, for Session::profile: a few percent slower.
  /// Of kernels that compile() gave.
  bool profile = false;
};

/// How an integer in memory is read.
struct IntegerForm {
  int bytes = 4;  // or 8
  /// Negative ones count from the end of the range of values: -1 is the last.
  bool from_end = false;
};

/// What a dim or scalar is in a launch: a number, or an integer in memory of the ranks' devices,
/// one address a rank of this process, equal on all. That one is read when the launch begins,
/// behind what its stream did before, and lies in no output or state, which the launch writes; if
/// it is out of its range, the launch stops as at a bad index.
class Value {
 public:
  Value() = default;                                                           // 0
  Value(std::integral auto number) : number_(static_cast<int64_t>(number)) {}  // NOLINT: is
  Value(const std::vector<const int32_t*>& addresses)                          // NOLINT: one
      : addresses_(addresses.begin(), addresses.end()) {}
  Value(std::vector<const void*> addresses, IntegerForm form)
      : addresses_(std::move(addresses)), form_(form) {}
  int64_t number() const { return number_; }
  /// Empty: it is a number.
  const std::vector<const void*>& addresses() const { return addresses_; }
  const IntegerForm& form() const { return form_; }

 private:
  int64_t number_ = 0;
  std::vector<const void*> addresses_;
  IntegerForm form_;
};
/// The integer at `address`, for a kernel of one rank.
inline Value value_at(const void* address) {
  return std::vector<const int32_t*>{static_cast<const int32_t*>(address)};
}
/// What a launch is given, by name: each scalar, and dims that don't have their maximum.
using Values = std::map<std::string, Value>;

/// Where a tensor lives in one launch, instead of where it is bound: one address a rank of this
/// process, under the rules of Session::bind, until that launch has ended.
struct Place {
  size_t tensor = 0;  // its index in Kernel::tensors
  std::span<void* const> at;
};

/// Of one launch.
struct Profile {
  std::string table;  // for people: op by op, with the critical path (docs/profile.md)
  std::string trace;  // JSON for chrome://tracing and Perfetto
};

/// Memory of tensors is the caller's (bind), another session's (share) or this one's (allocate);
/// each tensor needs some before the first launch. A session allocates what the kernel needs for
/// itself, temporaries and what ranks send each other, when it is opened.
///
/// Not thread safe; sessions are independent of each other, and each may be used from a thread of
/// its own. Moving one leaves the other empty, to be destroyed or assigned to.
class MACO_API Session {
 public:
  /// Compiles the kernel's code for the device and loads it on all ranks.
  static Result<Session> open(const Kernel& kernel, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// What it was opened with.
  const Kernel& kernel() const;
  /// Whether this process runs the rank: all, but for SessionOptions::process_a_rank.
  bool is_here(int rank) const;

  // Memory. Pointers are to memory of the rank's device: on Cpu ordinary memory.

  /// Lets a tensor live in memory of the caller's from the next launch on: `bytes` of it (at least
  /// TensorInfo::bytes), aligned to 16, which stays there until the session ends or another is
  /// bound. Nothing is copied. Launches of captured graphs find it there, too. No two tensors may
  /// share memory, but those of one name in sessions that share them: the proofs take them for
  /// apart.
  Status bind(int rank, std::string_view tensor, void* memory, int64_t bytes);
  /// Lets each param and state live where `other` has the one of that name, if both have one of the
  /// same type and shape and `other`'s lives somewhere: prefill and decoding of one model. That
  /// memory must outlive this session, and launches of the two must not overlap.
  Status share(const Session& other);
  /// Gives zeroed memory of the session's own to every tensor that has none. It is there until the
  /// session ends.
  Status allocate();
  /// Where a tensor lives; null: nowhere yet.
  Result<void*> address(int rank, std::string_view tensor) const;
  /// Copies `bytes` bytes of a tensor, from byte `offset` on, from or to host memory.
  Status write(int rank, std::string_view tensor, const void* from, int64_t bytes,
               int64_t offset = 0);
  Status read(int rank, std::string_view tensor, void* to, int64_t bytes, int64_t offset = 0) const;

  /// Fills the kernel's params, on the ranks of this process, with what a checkpoint has: `weights`
  /// is the text of weights.json, as import_model gives it, `folder` where the checkpoint's files
  /// are. Params that live nowhere get memory of the session's own; other tensors stay as they are.
  /// weights.json must have all params of the kernel, as the kernel has them, and may have more.
  /// Several threads read, several files at a time and only what is needed; the memory of the host
  /// that they take is a few megabytes each.
  ///
  /// A wrong weights.json, a file that is missing, cut off or another than it says, and a param
  /// that isn't there or is of another type or shape are InvalidArgument, by name, and nothing has
  /// changed. If memory can't be had, reading fails or stop() ended it, params hold anything.
  /// `progress` is told how many bytes of how many are there, on this thread, at most ten times a
  /// second and at the end. Not while launches run. With process_a_rank each process loads, and
  /// fails, by itself.
  Status load(std::string_view weights, const std::string& folder,
              const std::function<void(int64_t done, int64_t total)>& progress = {});

  // Launches.

  /// Runs the kernel once on all ranks and waits for it. If a rank stops early (a time-out, an
  /// index out of range), all do, and the error says which task of which rank waited for what; the
  /// session can run again.
  Status run(const Values& values = {});
  /// Puts a launch of all ranks on streams and returns. streams[r], a CUstream or cudaStream_t of
  /// rank r's GPU (null: its default one), has rank r's; without `streams` the session's own do. On
  /// a stream it comes behind what is there, and what is put there later comes behind it; it also
  /// comes behind the session's launch before it, wherever that is. Streams of several ranks must
  /// let all ranks' launches begin. A wrong call says so at once, a launch that fails at the next
  /// call of launch, wait or ended. On Cpu the launch has ended when this returns.
  ///
  /// Streams that are being captured (all of them, or none) get the launch as a part of their CUDA
  /// graphs: whenever these are launched, so is it, with `values` as they are now, but for those in
  /// memory. The caller sees to it that these launches and others of the session don't overlap, and
  /// that the session outlives the graphs. If one fails, those behind it do nothing until the next
  /// call of launch, wait or ended, outside of captures, has said so. A small kernel before it
  /// numbers each launch, from the first that is captured, or has values in memory, on.
  ///
  /// `places`: tensors that this launch has elsewhere, for memory that is another each time, as
  /// inputs and outputs of a function are. Nothing waits for it, and where they lie as in one of
  /// the last launches nothing is copied to the GPU. The graph of a captured launch keeps them.
  Status launch(const Values& values = {}, std::span<void* const> streams = {},
                std::span<const Place> places = {});
  /// Waits for all launches; for those of captured graphs the caller has waited before. Fails if
  /// any of them did. Before memory is bound, written or read by other means than the launches'
  /// streams; and at times, of sessions with graphs, whose counters it resets (docs/library.md).
  Status wait();
  /// Ends the launches that another thread waits for (run, wait, bench; launch on Cpu), on all
  /// ranks, or its load; that call fails, and the session can be used again. Does nothing if none
  /// waits. The one call that may be made from any thread at any time.
  void stop();
  /// Whether all launches have ended, those of captured graphs left out. Fails as `wait`; with
  /// process_a_rank it speaks of this process's rank, and leaves failures to `wait`.
  Result<bool> ended();
  /// The median of `launches` launches behind some to warm up: microseconds of the slowest rank, on
  /// Cuda by its clock, without the launch itself.
  Result<double> bench(const Values& values, int launches);
  /// Where the time of the last launch went, if the session was opened with
  /// SessionOptions::profile. With process_a_rank all processes call it, and get that of all ranks.
  Result<Profile> profile() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace maco
