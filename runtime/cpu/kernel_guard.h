// For programs that try kernels which may be wrong: reports which task crashed, or which tasks
// don't end, and ends the process.
#pragma once

#include <csignal>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/cpu/executor.h"
#include "runtime/status.h"

namespace maco::runtime {

/// The task that a context runs, readable by a signal handler and by other threads.
class GuardedTask {
 public:
  /// Called by the context's thread. `name` also says where the task runs; a long name is cut.
  void begin(std::string_view name);
  void end();

 private:
  friend class KernelGuard;
  std::atomic<uint64_t>* progress_ = nullptr;
  const char* shared_memory_ = nullptr;  // the CTA's
  size_t shared_bytes_ = 0;
  std::atomic<bool> runs_{false};
  std::array<std::atomic<char>, 240> name_{};  // ends with a zero
};

/// Memory in which signals of this thread are handled, whatever has become of its stack. If the
/// system gives none, they are handled on the stack.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_;
  stack_t before_{};
};

/// While a KernelGuard exists, two things end the process with the given exit status: a kernel that
/// crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT), or a launch in which no task begins
/// or ends for the given time (0: for ever). Standard error first gets the findings so far and the
/// tasks' names. Nothing is flushed or destroyed. A crash before the first launch is left to the
/// earlier handlers, which are restored when the guard is destroyed.
///
/// At most one exists at a time. The thread that launches owns it, and makes and destroys it while
/// no launch is under way. Sessions that use it (CpuSession::set_regions) don't launch after its
/// end.
class KernelGuard {
 public:
  /// Returns null, and a status, if the system gives no thread for the watch.
  static std::unique_ptr<KernelGuard> make(int exit_status, std::chrono::milliseconds patience,
                                           Status& status);
  ~KernelGuard();
  KernelGuard(const KernelGuard&) = delete;
  KernelGuard& operator=(const KernelGuard&) = delete;

  /// Surrounds a launch of `contexts`, and sets their `guarded`; each CTA has `shared_bytes`. Does
  /// nothing if `guard` is null.
  class Launch {
   public:
    Launch(KernelGuard* guard, CpuContexts& contexts, size_t shared_bytes);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    KernelGuard* const guard_;
  };

  /// Adds a line to report before the end; later lines that don't fit are left out. One thread at a
  /// time.
  void add_finding(std::string_view line);
  void forget_findings() { findings_size_ = 0; }
  /// Ends the process as a crash does, with this line behind the findings.
  [[noreturn]] void end(std::string_view line);

 private:
  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

  KernelGuard(int exit_status, std::chrono::milliseconds patience);
  static void on_signal(int signal, siginfo_t* info, void*);
  void crashed(int signal, const void* address);
  void watch();
  [[noreturn]] void end_hung();
  void begin_report() const;  // returns in one thread only

  const int exit_status_;
  const std::chrono::milliseconds patience_;
  const std::atomic<const GuardedTask*>* const running_of_launcher_;
  SignalStack stack_;  // of the thread that makes the guard
  std::array<struct sigaction, kSignals.size()> before_{};
  std::array<char, 16384> findings_{};
  std::atomic<size_t> findings_size_{0};
  std::atomic<bool> launched_{false};  // once

  std::mutex mutex_;  // for the rest; contexts and handlers don't take it
  std::condition_variable changed_;
  bool launching_ = false, leaving_ = false;
  std::unique_ptr<GuardedTask[]> tasks_;  // of the contexts of the launch
  size_t task_count_ = 0;
  std::atomic<uint64_t> progress_{0};  // launches that began, tasks that began or ended
  std::thread watch_;
};

/// A thread that runs one context to its end.
class GuardedThread {
 public:
  explicit GuardedThread(const CpuContext& context);
  ~GuardedThread();
  GuardedThread(const GuardedThread&) = delete;
  GuardedThread& operator=(const GuardedThread&) = delete;

 private:
  std::optional<SignalStack> stack_;
};

/// From here on this thread runs that context's code, until the next call.
void note_running(const CpuContext& context);

}  // namespace maco::runtime
