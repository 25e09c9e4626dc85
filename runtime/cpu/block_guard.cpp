// block_guard.cpp: handlers look only at what their own thread runs, which nobody else changes, and
// take no lock. The watch looks at all blocks, under one lock.
#include "runtime/cpu/block_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cpu/fibres.h"

namespace maco::runtime {

namespace {

constexpr int kLate = SIGURG;  // ignored unless somebody handles it
constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, kLate};

thread_local GuardedBlock* block_here = nullptr;
thread_local BlockScope* scope_here = nullptr;

int64_t time_of(clockid_t clock) {
  timespec t{};
  return clock_gettime(clock, &t) == 0 ? int64_t{t.tv_sec} * 1000000000 + t.tv_nsec : 0;
}
// The thread's CPU time; 0 if the system doesn't tell.
int64_t computed_ns(pthread_t thread) {
  clockid_t clock{};
  return pthread_getcpuclockid(thread, &clock) == 0 ? time_of(clock) : 0;
}

BlockEnd end_by(int signal) {
  switch (signal) {
    case SIGSEGV: return BlockEnd::Segment;
    case SIGBUS: return BlockEnd::Bus;
    case SIGFPE: return BlockEnd::Arithmetic;
    case SIGABRT: return BlockEnd::Aborted;
    default: return BlockEnd::Trapped;
  }
}

}  // namespace

/// The handlers, and the thread that watches the time, while any BlockGuard lives.
class BlockWatch {
 public:
  static BlockWatch& of_process() {
    static BlockWatch& one = *new BlockWatch;  // handlers may look at it until the process ends
    return one;
  }

  bool begin() {
    const std::lock_guard turn(turns_);
    if (users_ == 0) {
      try {
        leaving_ = false;
        thread_ = std::thread([this] { run(); });
      } catch (const std::system_error&) {
        return false;
      }
      struct sigaction action{};
      action.sa_sigaction = on_signal;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
      sigemptyset(&action.sa_mask);
      for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
    }
    ++users_;
    return true;
  }
  void end() {
    const std::lock_guard turn(turns_);
    if (--users_ > 0) return;
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

  void add(GuardedBlock& block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(&block);
    // The watch, which waits without a limit if there are no blocks, has to look at it.
    if (blocks_.size() == 1) changed_.notify_all();
  }
  void remove(GuardedBlock& block) {
    const std::lock_guard lock(mutex_);
    std::erase(blocks_, &block);
  }

 private:
  static void on_signal(int signal, siginfo_t* info, void* context) {
    GuardedBlock* block = block_here;
    // Signals from others, as by kill -ABRT, aren't the block's; abort() sends its own.
    const bool own = info->si_code > 0 || info->si_pid == getpid();
    if (own && block && block->in_users_code_ != 0) {
      if (signal != kLate) block->give_up(end_by(signal), info->si_addr);
      if (block->late_) block->give_up(BlockEnd::Late, nullptr);
    }
    if (signal == kLate && block && block->late_) return;  // the watch tries again
    of_process().pass_on(signal, info, context);
  }

  void pass_on(int signal, siginfo_t* info, void* context) const {
    const auto at = std::find(kSignals.begin(), kSignals.end(), signal) - kSignals.begin();
    const struct sigaction& before = before_[static_cast<size_t>(at)];
    if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
      return before.sa_handler(signal);
    if (signal == kLate) return;
    // The instruction that raised it runs again, and ends the process.
    std::signal(signal, SIG_DFL);
    if (info->si_code <= 0) raise(signal);  // sent by kill
  }

  // Whether no thread of the block has ended for so long.
  static bool late(GuardedBlock& block, std::chrono::milliseconds patience) {
    const uint64_t progress = block.progress_.load(std::memory_order_relaxed);
    const int64_t computed = computed_ns(block.thread_), now = time_of(CLOCK_MONOTONIC);
    if (block.seen_ != progress) {
      block.seen_ = progress;
      block.computing_since_ns_ = computed;
      block.waiting_since_ns_ = now;
      return false;
    }
    constexpr int64_t longest_ms = int64_t{1} << 39;  // 17 years
    const int64_t most = std::min<int64_t>(patience.count(), longest_ms) * 1000000;
    return computed - block.computing_since_ns_ >= most ||
           (now - block.waiting_since_ns_) / 10 >= most;
  }

  void run() {
    using std::chrono::milliseconds;
    std::unique_lock lock(mutex_);
    while (!leaving_) {
      milliseconds period{1000};
      for (GuardedBlock* block : blocks_) {
        const milliseconds patience = block->scope_->patience;
        if (patience.count() == 0) continue;
        period = std::min(period, std::max(patience / 8, milliseconds(1)));
        if (!late(*block, patience)) continue;
        block->late_ = true;
        period = milliseconds(1);
        pthread_kill(block->thread_, kLate);
      }
      if (blocks_.empty())
        changed_.wait(lock);
      else
        changed_.wait_for(lock, period);
    }
  }

  std::mutex turns_;  // for begin and end
  int users_ = 0;
  std::thread thread_;
  std::array<struct sigaction, kSignals.size()> before_{};

  std::mutex mutex_;  // for the rest
  std::condition_variable changed_;
  std::vector<GuardedBlock*> blocks_;
  bool leaving_ = false;
};

std::unique_ptr<BlockGuard> BlockGuard::make() {
  std::unique_ptr<BlockGuard> guard(BlockWatch::of_process().begin() ? new BlockGuard : nullptr);
  return guard;
}
BlockGuard::~BlockGuard() { BlockWatch::of_process().end(); }

BlockScope* set_block_scope(BlockScope* scope) { return std::exchange(scope_here, scope); }

GuardedBlock* block_of_this_thread() { return block_here; }

GuardedBlock::GuardedBlock(FibreThread& fibres)
    : fibres_(fibres), scope_(scope_here), outer_(block_here), thread_(pthread_self()) {
  if (!scope_) return;
  BlockWatch::of_process().add(*this);
  block_here = this;
}

GuardedBlock::~GuardedBlock() {
  if (!scope_) return;
  block_here = outer_;
  BlockWatch::of_process().remove(*this);
}

bool GuardedBlock::ended_well() {
  if (!scope_ || !scope_->spoiled || !scope_->spoiled()) return true;
  end_ = BlockEnd::Spoiled;
  if (scope_->end == BlockEnd::Done) scope_->end = end_;
  return false;
}

void GuardedBlock::enter() {
  in_users_code_ = 1;
  if (late_ && scope_) give_up(BlockEnd::Late, nullptr);
}
void GuardedBlock::leave() { in_users_code_ = 0; }

void GuardedBlock::give_up(BlockEnd end, const void* address) {
  in_users_code_ = 0;
  end_ = end;
  if (scope_->end == BlockEnd::Done) {
    scope_->end = end;
    scope_->address = address;
  }
  fibres_.abandon(*fibre_);
}

OutsideUsersCode::OutsideUsersCode()
    : block_(block_here), was_(block_ ? block_->in_users_code_ : 0) {
  if (block_) block_->leave();
}
OutsideUsersCode::~OutsideUsersCode() {
  if (block_ && was_) block_->enter();
}

}  // namespace maco::runtime
