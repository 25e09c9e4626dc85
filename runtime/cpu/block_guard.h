// Gives up blocks of users' kernels that crash or don't end, so that the process around them goes
// on.
//
// A block's threads are fibres. If one of them raises a signal, the handler leaves the fibre for
// the code that runs the block, and never returns to it. A system thread whose block takes too long
// is sent a signal, and leaves in the same way. The kernel then stops as with any other report.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/host/block_end.h"

namespace maco::runtime {

class FibreThread;
struct Fibre;

/// What became of the blocks that one context of a launch, or one launch of an original kernel,
/// runs one after the other.
struct BlockScope {
  /// How long a block may compute without any of its threads ending; 0: for ever. The system
  /// thread's CPU time counts, or the elapsed time if that is ten times as much.
  std::chrono::milliseconds patience{0};
  /// Called when a block has ended: returns whether memory outside of tensors was overwritten.
  std::function<bool()> spoiled{};
  // About the first block that was given up:
  BlockEnd end = BlockEnd::Done;
  const void* address = nullptr;  // Segment, Bus: the address that it touched
};

/// While a BlockGuard lives, blocks that threads of this process run in a BlockScope are given up
/// if they crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT) or take too long (SIGURG is
/// used). Other signals of these kinds go to the earlier handlers, which are restored when the last
/// BlockGuard ends. Thread safe.
class BlockGuard {
 public:
  /// Null if the system gives no thread for the watch.
  static std::unique_ptr<BlockGuard> make();
  ~BlockGuard();
  BlockGuard(const BlockGuard&) = delete;
  BlockGuard& operator=(const BlockGuard&) = delete;

 private:
  BlockGuard() = default;
};

/// From here on this thread runs blocks for `scope`; null: for none. Returns the previous scope.
BlockScope* set_block_scope(BlockScope* scope);

/// A block that this thread runs, from the start of its first thread on. A block of a thread
/// without a scope isn't guarded.
class GuardedBlock {
 public:
  explicit GuardedBlock(FibreThread& fibres);
  ~GuardedBlock();
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;

  /// Called by the code that resumes fibres: `fibre` runs next.
  void turn(Fibre& fibre) { fibre_ = &fibre; }
  /// Called by the code that resumes fibres: a thread has ended.
  void progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  /// Whether there is a scope, to which the block's end is reported.
  bool guarded() const { return scope_ != nullptr; }
  /// Called by the code that resumes fibres: whether the block has been given up.
  bool given_up() const { return end_ != BlockEnd::Done; }
  /// Called by the code that resumes fibres, when all threads have ended: false if memory was
  /// spoiled.
  bool ended_well();
  /// Called by a fibre around the user's code: only there may the block be given up.
  void enter();
  void leave();
  /// Called by a fibre, or by a handler in its place: gives the block up.
  [[noreturn]] void give_up(BlockEnd end, const void* address);

 private:
  friend class BlockWatch;
  friend class OutsideUsersCode;
  FibreThread& fibres_;
  BlockScope* const scope_;
  GuardedBlock* const outer_;
  Fibre* fibre_ = nullptr;
  const pthread_t thread_;
  volatile std::sig_atomic_t in_users_code_ = 0;
  std::atomic<uint64_t> progress_{0};
  // Used by the watch: the last `progress_` that it saw, and since when.
  uint64_t seen_ = UINT64_MAX;
  int64_t computing_since_ns_ = 0, waiting_since_ns_ = 0;
  std::atomic<bool> late_{false};
  BlockEnd end_ = BlockEnd::Done;
};

/// The block that this thread runs, if it is guarded.
GuardedBlock* block_of_this_thread();

/// Surrounds runtime code that a user's kernel has called: such code isn't left before its end.
class OutsideUsersCode {
 public:
  OutsideUsersCode();
  ~OutsideUsersCode();
  OutsideUsersCode(const OutsideUsersCode&) = delete;
  OutsideUsersCode& operator=(const OutsideUsersCode&) = delete;

 private:
  GuardedBlock* const block_;
  const std::sig_atomic_t was_;
};

}  // namespace maco::runtime
