// A kernel with its memory, on all ranks or on this process's rank, ready to run.
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
  /// How long a launch may go on without progress on any rank before it is stopped.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  /// Cpu: tasks of all ranks take turns in an order that follows from this seed, always the same.
  std::optional<uint64_t> order = {};
  /// Each rank runs in a process of its own, and this process runs the rank that its environment
  /// names, as torchrun and mpirun set it (docs/running.md). All processes open their sessions in
  /// one order, each with the same kernel, call run, launch, wait and bench in one order, and close
  /// their sessions in one order. If a launch wasn't awaited, wait reports its outcome in all
  /// processes. A launch's values must be the same in all processes; only run and bench check this.
  /// Memory of other ranks can't be reached from here: streams and addresses of values are given
  /// only for this process's rank. A process that ends early makes the launches of the others fail.
  /// On Cuda the rank's GPU is number rank / ranks_per_gpu among those that the process sees, or
  /// the only one.
  bool process_a_rank = false;
  /// With process_a_rank: the rank of this process. There are as many processes as the kernel has
  /// ranks, which meet under the name `group`: the same for all of them, and different from every
  /// other group's on this host. Sessions of one group are opened in one order, those of several
  /// groups in any order. -1: the environment names the rank, and `group` is empty.
  int rank = -1;
  std::string group = {};
  /// Cuda, with process_a_rank: the GPU of this process's rank, by its number in this process. -1:
  /// as process_a_rank says.
  int gpu = -1;
  /// Cuda: the memory through which ranks send to each other: "" (peer access in one process,
  /// CUDA's virtual memory between processes), "nccl" (windows of NCCL 2.28 or later), or "nvshmem"
  /// (its symmetric heap; a process for each rank).
  std::string peer_memory = {};
  /// Called with the name of each step that may take seconds while a session is opened ("compiling
  /// the kernel with NVRTC"); "" at the end. Called on the thread that opens it.
  std::function<void(std::string_view)> progress = {};
  /// Compiles the kernel so that it stamps its tasks, for Session::profile; it is then a few
  /// percent slower. Only for kernels made by compile().
  bool profile = false;
};

/// How an integer in memory is read.
struct IntegerForm {
  int bytes = 4;  // or 8
  /// Negative values count from the end of the range of values: -1 is the last.
  bool from_end = false;
};

/// The value of a dim or scalar in a launch: a number, or an integer in memory of the ranks'
/// devices, with one address for each rank of this process. The integer must be equal on all ranks.
/// It is read when the launch begins, after earlier work on its stream, and must not lie in an
/// output or state, which the launch writes. If it is out of its range, the launch stops as with a
/// bad index.
class Value {
 public:
  Value() = default;                                                           // 0
  Value(std::integral auto number) : number_(static_cast<int64_t>(number)) {}  // NOLINT: is
  Value(const std::vector<const int32_t*>& addresses)                          // NOLINT: one
      : addresses_(addresses.begin(), addresses.end()) {}
  Value(std::vector<const void*> addresses, IntegerForm form)
      : addresses_(std::move(addresses)), form_(form) {}
  int64_t number() const { return number_; }
  /// Empty if it is a number.
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
/// The values of a launch, by name: each scalar, and dims that don't have their maximum.
using Values = std::map<std::string, Value>;

/// A tensor's address in one launch, in place of the bound one: one address for each rank of this
/// process, under the rules of Session::bind, until that launch has ended.
struct Place {
  size_t tensor = 0;  // its index in Kernel::tensors
  std::span<void* const> at;
};

/// The profile of one launch.
struct Profile {
  std::string table;  // for people: op by op, with the critical path (docs/profile.md)
  std::string trace;  // JSON for chrome://tracing and Perfetto
};

/// A tensor's memory is the caller's (bind), another session's (share) or this one's (allocate);
/// each tensor needs memory before the first launch. When a session is opened, it allocates what
/// the kernel needs for itself: temporaries, and what ranks send to each other.
///
/// Not thread safe. Sessions are independent of each other, and each may be used from a thread of
/// its own. Moving a session leaves the other one empty, to be destroyed or assigned to.
class MACO_API Session {
 public:
  /// Compiles the kernel's code for the device and loads it on all ranks.
  static Result<Session> open(const Kernel& kernel, const SessionOptions& options = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// The kernel with which it was opened.
  const Kernel& kernel() const;
  /// Whether this process runs the rank: always, except with SessionOptions::process_a_rank.
  bool is_here(int rank) const;

  // Memory. Pointers are to memory of the rank's device; on Cpu that is ordinary memory.

  /// Places a tensor in memory of the caller's from the next launch on: `bytes` bytes (at least
  /// TensorInfo::bytes), aligned to 16, which must exist until the session ends or other memory is
  /// bound. Nothing is copied. Launches of captured graphs use the new memory, too. No two tensors
  /// may share memory, except tensors of one name in sessions that share them: the proofs assume
  /// this.
  Status bind(int rank, std::string_view tensor, void* memory, int64_t bytes);
  /// Places each param and state where `other` has the one of that name, if both have it with the
  /// same type and shape and `other`'s has memory: for prefill and decoding of one model. That
  /// memory must outlive this session, and launches of the two must not overlap.
  Status share(const Session& other);
  /// Gives zeroed memory of the session's own to every tensor that has none. It exists until the
  /// session ends.
  Status allocate();
  /// A tensor's address; null if it has none yet.
  Result<void*> address(int rank, std::string_view tensor) const;
  /// Copies `bytes` bytes of a tensor, from byte `offset` on, from or to host memory.
  Status write(int rank, std::string_view tensor, const void* from, int64_t bytes,
               int64_t offset = 0);
  Status read(int rank, std::string_view tensor, void* to, int64_t bytes, int64_t offset = 0) const;

  /// Fills the kernel's params, on the ranks of this process, from a checkpoint. `weights`: the
  /// text of weights.json, from import_model; `folder`: the folder of the checkpoint's files.
  /// Params without memory get memory of the session's own; other tensors don't change.
  /// weights.json must have all params of the kernel, as the kernel has them, and may have more.
  /// Several threads read several files at a time, and only what is needed; each takes a few
  /// megabytes of host memory.
  ///
  /// These are InvalidArgument, by name, and change nothing: a wrong weights.json; a file that is
  /// missing, cut off or different from its description; a param that is missing or of another type
  /// or shape. If memory can't be allocated, reading fails or stop() ended it, params hold
  /// anything. `progress` is called with the loaded and the total bytes, on this thread, at most
  /// ten times a second and at the end. Not while launches run. With process_a_rank each process
  /// loads, and fails, by itself.
  Status load(std::string_view weights, const std::string& folder,
              const std::function<void(int64_t done, int64_t total)>& progress = {});

  // Launches.

  /// Runs the kernel once on all ranks and waits for it. If a rank stops early (a time-out, an
  /// index out of range), all do. The error then says which task of which rank waited for what; the
  /// session can run again.
  Status run(const Values& values = {});
  /// Puts a launch of all ranks on streams and returns. streams[r], a CUstream or cudaStream_t of
  /// rank r's GPU (null: its default one), gets rank r's launch; without `streams` the session's
  /// own streams are used. The launch comes after earlier work on its stream, and before later
  /// work; it also comes after the session's previous launch, wherever that is. Streams of several
  /// ranks must let all ranks' launches begin. A wrong call fails at once; a launch that fails is
  /// reported by the next call of launch, wait or ended. On Cpu the launch has ended when this
  /// returns.
  ///
  /// If the streams are being captured (all of them, or none), the launch becomes a part of their
  /// CUDA graphs: it runs whenever these are launched, with `values` as they are now, except for
  /// values in memory. The caller must make sure that these launches and others of the session
  /// don't overlap, and that the session outlives the graphs. If one of them fails, later ones do
  /// nothing until the next call of launch, wait or ended, outside of captures, has reported it.
  /// From the first launch on that is captured, or has values in memory, a small kernel before each
  /// launch numbers it.
  ///
  /// `places`: tensors that this launch has at other addresses, for memory that changes each time,
  /// such as the inputs and outputs of a function. Nothing waits for this, and nothing is copied to
  /// the GPU if the tensors lie as in one of the last launches. The graph of a captured launch
  /// keeps them.
  Status launch(const Values& values = {}, std::span<void* const> streams = {},
                std::span<const Place> places = {});
  /// Waits for all launches; the caller must already have waited for those of captured graphs.
  /// Fails if any of them failed. Call it before memory is bound, written or read by other means
  /// than the launches' streams. A session with graphs, whose counters it resets, needs it from
  /// time to time (docs/library.md).
  Status wait();
  /// Ends the launches for which another thread waits (run, wait, bench; launch on Cpu), on all
  /// ranks, or its load. That call fails, and the session can be used again. Does nothing if no
  /// thread waits. This is the only call that any thread may make at any time.
  void stop();
  /// Whether all launches have ended, except those of captured graphs. Fails as `wait` does. With
  /// process_a_rank it is about this process's rank, and leaves failures to `wait`.
  Result<bool> ended();
  /// The median of `launches` launches after some for warm-up: microseconds of the slowest rank, on
  /// Cuda by its clock, without the launch itself.
  Result<double> bench(const Values& values, int launches);
  /// Where the time of the last launch went, if the session was opened with
  /// SessionOptions::profile. With process_a_rank all processes call it, and get the profile of all
  /// ranks.
  Result<Profile> profile() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace maco
