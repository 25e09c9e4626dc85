// kernel_guard.cpp: makes reports without using the heap or a lock, and writes them with write().
#include "runtime/cpu/kernel_guard.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "ir/check.h"
#include "runtime/cpu/block_guard.h"

namespace maco::runtime {
namespace {

constexpr size_t kSignalStackBytes = size_t{64} << 10;
constexpr size_t kMostHungTasks = 24;

// The handlers' data: they get no argument of ours.
std::atomic<KernelGuard*> guard_of_process{nullptr};
thread_local std::atomic<const GuardedTask*> running{nullptr};

// Text that is built without the heap; what doesn't fit is left out.
class Text {
 public:
  Text& add(const char* text) {
    while (*text && size_ < bytes_.size()) bytes_[size_++] = *text++;
    return *this;
  }
  Text& add(uint64_t number) {
    std::array<char, 24> digits{};
    size_t at = digits.size() - 1;
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
    } while (number /= 10);
    return add(&digits[at]);
  }
  template <size_t kSize>
  Text& add(const std::array<std::atomic<char>, kSize>& text) {
    for (const std::atomic<char>& c : text) {
      const char letter = c.load(std::memory_order_relaxed);
      if (!letter || size_ == bytes_.size()) break;
      bytes_[size_++] = letter;
    }
    return *this;
  }
  void write() const { write_all(bytes_.data(), size_); }

  static void write_all(const char* text, size_t size) {
    while (size > 0) {
      const ssize_t n = ::write(STDERR_FILENO, text, size);
      if (n <= 0) return;
      text += n;
      size -= static_cast<size_t>(n);
    }
  }

 private:
  std::array<char, 512> bytes_{};
  size_t size_ = 0;
};

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV: return "segmentation fault";
    case SIGBUS: return "bus error";
    case SIGFPE: return "arithmetic error, as a division by zero";
    case SIGABRT: return "aborted";
    default: return "trap, as for a vector that isn't aligned or a division by zero";
  }
}

}  // namespace

void GuardedTask::begin(std::string_view name) {
  const size_t size = std::min(name.size(), name_.size() - 1);
  for (size_t i = 0; i < size; ++i) name_[i].store(name[i], std::memory_order_relaxed);
  name_[size].store('\0', std::memory_order_relaxed);
  runs_.store(true, std::memory_order_relaxed);
  progress_->fetch_add(1, std::memory_order_relaxed);
}

void GuardedTask::end() {
  runs_.store(false, std::memory_order_relaxed);
  progress_->fetch_add(1, std::memory_order_relaxed);
}

KernelGuard::KernelGuard(int exit_status, std::chrono::milliseconds patience)
    : exit_status_(exit_status), patience_(patience), running_of_launcher_(&running) {}

std::unique_ptr<KernelGuard> KernelGuard::make(int exit_status, std::chrono::milliseconds patience,
                                               Status& status) {
  std::unique_ptr<KernelGuard> guard(new KernelGuard(exit_status, patience));
  KernelGuard* none = nullptr;
  MACO_CHECK(guard_of_process.compare_exchange_strong(none, guard.get()), "a second kernel guard");
  try {
    if (patience.count() > 0) guard->watch_ = std::thread([&own = *guard] { own.watch(); });
  } catch (const std::system_error& error) {
    guard_of_process.store(nullptr);
    status = Status::failure(fmt::format("no thread to watch the kernel: {}", error.what()));
    return nullptr;
  }
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &guard->before_[i]);
  return guard;
}

KernelGuard::~KernelGuard() {
  if (guard_of_process.load() != this) return;  // the guard was never completed
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  guard_of_process.store(nullptr);
}

KernelGuard::Launch::Launch(KernelGuard* guard, CpuContexts& contexts, size_t shared_bytes)
    : guard_(guard) {
  if (!guard) return;
  {
    const std::lock_guard lock(guard->mutex_);
    guard->tasks_ = std::make_unique<GuardedTask[]>(contexts.size());
    guard->task_count_ = contexts.size();
    for (size_t i = 0; i < contexts.size(); ++i) {
      GuardedTask& task = guard->tasks_[i];
      task.progress_ = &guard->progress_;
      task.shared_memory_ = contexts[i].memory;
      task.shared_bytes_ = shared_bytes;
      contexts[i].guarded = &task;
    }
    guard->launching_ = true;
    guard->launched_ = true;
    ++guard->progress_;
  }
  guard->changed_.notify_all();
}

KernelGuard::Launch::~Launch() {
  if (!guard_) return;
  running = nullptr;
  const std::lock_guard lock(guard_->mutex_);
  guard_->launching_ = false;
}

void KernelGuard::add_finding(std::string_view line) {
  size_t at = findings_size_;
  const auto add = [&](std::string_view text) {
    std::copy(text.begin(), text.end(), findings_.begin() + static_cast<std::ptrdiff_t>(at));
    at += text.size();
  };
  constexpr std::string_view kStart = "error: ";
  if (at + kStart.size() + line.size() + 1 > findings_.size()) return;
  add(kStart);
  add(line);
  add("\n");
  findings_size_ = at;
}

void KernelGuard::begin_report() const {
  static std::atomic<bool> begun{false};
  if (begun.exchange(true))
    for (;;) pause();  // the first thread here ends the process
  Text::write_all(findings_.data(), findings_size_);
}

void KernelGuard::end(std::string_view line) {
  begin_report();
  Text().add("error: ").write();
  Text::write_all(line.data(), line.size());
  Text().add("\n").write();
  _exit(exit_status_);
}

void KernelGuard::on_signal(int signal, siginfo_t* info, void*) {
  if (KernelGuard* guard = guard_of_process.load()) guard->crashed(signal, info->si_addr);
}

void KernelGuard::crashed(int signal, const void* address) {
  if (!launched_) {
    for (size_t i = 0; i < kSignals.size(); ++i)
      if (kSignals[i] == signal) sigaction(signal, &before_[i], nullptr);
    raise(signal);  // delivered when the handler returns
    return;
  }
  begin_report();
  Text text;
  text.add("error: ");
  const GuardedTask* task = running;
  if (!task || !task->runs_) {
    text.add("a crash outside of a task (").add(name_of(signal));
    text.add("); tasks may have spoiled memory");
  } else {
    text.add(task->name_).add(" crashed (").add(name_of(signal));
    // The page on each side can't be touched.
    const auto at = reinterpret_cast<uintptr_t>(address),
               begin = reinterpret_cast<uintptr_t>(task->shared_memory_);
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    if (signal == SIGSEGV && at + page >= begin && at < begin + task->shared_bytes_ + page)
      text.add(" beside the CTA's shared memory");
    text.add(")");
  }
  text.add("; the run ends here\n").write();
  _exit(exit_status_);
}

void KernelGuard::watch() {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    if (!launching_) {
      changed_.wait(lock);
      continue;
    }
    const uint64_t seen = progress_;
    const auto until = Clock::now() + patience_;
    while (!leaving_ && launching_ && progress_ == seen) {
      if (Clock::now() >= until) end_hung();
      changed_.wait_for(lock, std::clamp(patience_ / 8, milliseconds(1), milliseconds(1000)));
    }
  }
}

void KernelGuard::end_hung() {
  begin_report();
  Text()
      .add("error: no task has begun or ended for ")
      .add(static_cast<uint64_t>(patience_.count()))
      .add(" ms; the run ends here. Within:\n")
      .write();
  // Only one fibre runs at a time, and it keeps the others from going on.
  const GuardedTask* only = *running_of_launcher_;
  size_t hung = 0;
  for (size_t i = 0; i < task_count_; ++i) {
    if (!tasks_[i].runs_ || (only && only != &tasks_[i])) continue;
    if (++hung <= kMostHungTasks) Text().add("  ").add(tasks_[i].name_).add("\n").write();
  }
  if (hung == 0) Text().add("  no task\n").write();
  if (hung > kMostHungTasks) Text().add("  and ").add(hung - kMostHungTasks).add(" more\n").write();
  _exit(exit_status_);
}

SignalStack::SignalStack()
    : memory_(mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0)) {
  if (memory_ == MAP_FAILED) return;
  stack_t stack{};
  stack.ss_sp = memory_;
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, &before_);
}

SignalStack::~SignalStack() {
  if (memory_ == MAP_FAILED) return;
  sigaltstack(&before_, nullptr);
  munmap(memory_, kSignalStackBytes);
}

GuardedThread::GuardedThread(const CpuContext& context) {
  if (!context.guarded && !context.blocks) return;
  stack_.emplace();
  note_running(context);
}

GuardedThread::~GuardedThread() {
  if (stack_) note_running({});
}

void note_running(const CpuContext& context) {
  running = context.guarded;
  set_block_scope(context.blocks);
}

}  // namespace maco::runtime
