// Blocks of users' kernels that crash or don't end are given up, and what is around them goes on.
//
// A block's threads are fibres. Where one of them raises a signal, the handler leaves it for the
// code that runs the block and never comes back to it; a thread of the system that lets a block's
// time pass is sent a signal, and leaves likewise. The kernel then stops as by any other report.
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
/// runs one behind the other.
struct BlockScope {
  /// How long a block may compute without that a thread of it ends; 0: for ever. Time counts that
  /// the system's thread has, or all time if it is ten times as much.
  std::chrono::milliseconds patience{0};
  /// Called when a block has ended: whether memory that isn't a tensor's was overwritten.
  std::function<bool()> spoiled{};
  // Of the first block that was given up:
  BlockEnd end = BlockEnd::Done;
  const void* address = nullptr;  // Segment, Bus: what it touched
};

/// While one lives, blocks that threads of this process run in a BlockScope are given up where they
/// crash (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT) or take too long (SIGURG is used).
/// Other signals of these kinds go to the handlers that were there before, which come back with the
/// last one. Thread safe.
class BlockGuard {
 public:
  /// Null if the system gives no thread to watch the time.
  static std::unique_ptr<BlockGuard> make();
  ~BlockGuard();
  BlockGuard(const BlockGuard&) = delete;
  BlockGuard& operator=(const BlockGuard&) = delete;

 private:
  BlockGuard() = default;
};

/// This thread runs blocks for `scope` from here on; null: for none. Returns what was before.
BlockScope* set_block_scope(BlockScope* scope);

/// A block that this thread runs, from its first thread's begin on. A block of a thread without a
/// scope isn't guarded.
class GuardedBlock {
 public:
  explicit GuardedBlock(FibreThread& fibres);
  ~GuardedBlock();
  GuardedBlock(const GuardedBlock&) = delete;
  GuardedBlock& operator=(const GuardedBlock&) = delete;

  /// By who resumes: the fibre that is to go on.
  void turn(Fibre& fibre) { fibre_ = &fibre; }
  /// By who resumes: a thread has ended.
  void progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  /// Whether there is a scope, which hears of its end.
  bool guarded() const { return scope_ != nullptr; }
  /// By who resumes: has the block been given up?
  bool given_up() const { return end_ != BlockEnd::Done; }
  /// By who resumes, when all its threads have ended: false if memory was spoiled.
  bool ended_well();
  /// By a fibre, around code of the user's: only there it may be left.
  void enter();
  void leave();
  /// By a fibre, or a handler in its place: gives the block up.
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
  // By the watch, of `seen_` and since when it is so:
  uint64_t seen_ = UINT64_MAX;
  int64_t computing_since_ns_ = 0, waiting_since_ns_ = 0;
  std::atomic<bool> late_{false};
  BlockEnd end_ = BlockEnd::Done;
};

/// The block that this thread runs, if it is guarded.
GuardedBlock* block_of_this_thread();

/// Code of the runtime that a user's kernel has called: it is left at its end only.
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
