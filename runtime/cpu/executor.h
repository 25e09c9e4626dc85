// Runs the contexts of one launch: one context for each warp role of each CTA of each rank. Two
// executors run the same compiled kernel.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "runtime/cpu/compile.h"
#include "runtime/cpu/intrinsics/cpu_context.h"
#include "runtime/host/abi.h"
#include "runtime/status.h"

namespace maco::runtime {

class AccessChecker;
class GuardedTask;
struct BlockScope;
struct TaskAccess;

/// One context, with what the executors and the checks keep for it.
struct CpuContext : maco_cpu::RoleContext {
  const Launch* launch = nullptr;
  AccessChecker* checker = nullptr;  // debug mode
  TaskAccess* task_access = nullptr;
  GuardedTask* guarded = nullptr;  // of a KernelGuard, if any
  BlockScope* blocks = nullptr;    // for kernels with users' blocks, while a BlockGuard lives
  void* executor = nullptr;        // the executor's own
};

/// All contexts of a launch; their addresses don't change.
using CpuContexts = std::deque<CpuContext>;

/// Tells the checker, if any; each executor's `task` calls this.
void note_task(CpuContext& context, int place, bool begins);

/// Work that goes on beside the contexts of a launch, in the same memory.
class Beside {
 public:
  virtual ~Beside() = default;
  /// Does what can be done at once; returns false if that is nothing. After storing to a word for
  /// which a context may wait, calls `changed` with its address.
  virtual bool step(const std::function<void(const void*)>& changed) = 0;
};

/// Runs a thread for each context. `jitter`: random delays before tasks, waits and signals,
/// different for each launch. `alone`: false if other processes change words for which contexts
/// wait. `beside`, if any, gets a thread, too. Fails, without having run anything, if the system
/// gives fewer threads.
Status run_on_threads(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts,
                      const uint64_t* jitter, bool alone = true, Beside* beside = nullptr);

/// Runs a fibre for each context, on one thread. Fibres are switched where they wait, signal or
/// begin a task, in an order that follows only from `seed` and the launch's epoch. Time is virtual:
/// it passes only when no fibre can go on, so that a deadlock is reported as a time-out at once.
/// Fails, without having run anything, if there is no memory for stacks.
Status run_on_fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts,
                     uint64_t seed, Beside* beside = nullptr);

/// SplitMix64: a small generator with the same results everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, n).
  uint64_t below(uint64_t n) { return next() % n; }

 private:
  uint64_t state_;
};

}  // namespace maco::runtime
