// For programs whose work is to try kernels that may be wrong: says which task crashed, or which
// tasks don't end, and ends the process.
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

/// The task that a context runs, where a signal handler and other threads can read it.
class GuardedTask {
 public:
  /// By the context's thread. `name` says also where the task runs; a long one is cut.
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

/// Memory in which signals of this thread are handled, whatever has become of its stack; if the
/// system has none, they are handled on the stack.
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

/// While one exists, a kernel that crashes (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT), or
/// a launch in which no task begins or ends for the time that is given (0: for ever), ends the
/// process with the exit status that is given, once standard error has what was found so far and
/// the tasks' names. Nothing is flushed or destroyed then. A crash before the first launch is left
/// to the handlers that were there before, which come back when the guard goes.
///
/// At most one at a time. Owned by the thread that launches, which makes and destroys it while no
/// launch is under way; sessions that use it (CpuSession::set_regions) launch no more after it.
class KernelGuard {
 public:
  /// Null with a status if the system gives no thread for the watch.
  static std::unique_ptr<KernelGuard> make(int exit_status, std::chrono::milliseconds patience,
                                           Status& status);
  ~KernelGuard();
  KernelGuard(const KernelGuard&) = delete;
  KernelGuard& operator=(const KernelGuard&) = delete;

  /// Around a launch of `contexts`, which get their `guarded`; `shared_bytes` as each CTA has. Null
  /// for `guard`: does nothing.
  class Launch {
   public:
    Launch(KernelGuard* guard, CpuContexts& contexts, size_t shared_bytes);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    KernelGuard* const guard_;
  };

  /// What is reported before the end, a line each; later ones that don't fit are left out. One
  /// thread at a time.
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
  void begin_report() const;  // returns to one thread only

  const int exit_status_;
  const std::chrono::milliseconds patience_;
  const std::atomic<const GuardedTask*>* const running_of_launcher_;
  SignalStack stack_;  // of the thread that makes it
  std::array<struct sigaction, kSignals.size()> before_{};
  std::array<char, 16384> findings_{};
  std::atomic<size_t> findings_size_{0};
  std::atomic<bool> launched_{false};  // once

  std::mutex mutex_;  // for the rest, but contexts and handlers don't take it
  std::condition_variable changed_;
  bool launching_ = false, leaving_ = false;
  std::unique_ptr<GuardedTask[]> tasks_;  // of the contexts of the launch
  size_t task_count_ = 0;
  std::atomic<uint64_t> progress_{0};  // launches that began, tasks that began or ended
  std::thread watch_;
};

/// Of a thread that runs one context to its end.
class GuardedThread {
 public:
  explicit GuardedThread(const CpuContext& context);
  ~GuardedThread();
  GuardedThread(const GuardedThread&) = delete;
  GuardedThread& operator=(const GuardedThread&) = delete;

 private:
  std::optional<SignalStack> stack_;
};

/// This thread runs that context's code from here on, until the next call.
void note_running(const CpuContext& context);

}  // namespace maco::runtime
