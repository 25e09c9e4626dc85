// Contexts as fibres of one thread: each has its own stack, and runs until it yields.
#pragma once

#include <ucontext.h>

#include <deque>
#include <functional>

#include "runtime/cpu/executor.h"

namespace maco::runtime {

/// The code that contexts run: a kernel of a library, or other code that calls the contexts' hooks.
struct ContextCode {
  std::function<void(CpuContext&)> run;    // to its end
  std::function<void(CpuContext&)> enter;  // before a context begins or goes on
};
/// maco_kernel of a library.
ContextCode code_of(const CpuLibrary& library, CpuLibrary::Entry entry);

/// Runs `body`, which makes fibres and runs them. Fails if the system gave no memory for a stack.
Status with_fibres(const std::function<void()>& body);

struct Fibre {
  CpuContext* context = nullptr;
  void* executor = nullptr;  // the executor's own
  bool ended = false;

 private:
  friend class FibreThread;
  class FibreThread* thread = nullptr;
  ucontext_t state{};
  void* stack = nullptr;
  void* fake_stack = nullptr;       // AddressSanitizer's
  void* sanitizer_fibre = nullptr;  // ThreadSanitizer's
};

class FibreThread {
 public:
  explicit FibreThread(ContextCode code);
  /// Abandons fibres that haven't ended; nothing on their stacks is destroyed.
  ~FibreThread();
  FibreThread(const FibreThread&) = delete;
  FibreThread& operator=(const FibreThread&) = delete;

  /// Makes a fibre for the context, whose `executor` becomes the fibre. Its address doesn't change.
  /// Only within `with_fibres`.
  Fibre& add(CpuContext& context, void* executor);
  std::deque<Fibre>& fibres() { return fibres_; }
  /// Runs the fibre until it yields or ends.
  void resume(Fibre& fibre);
  /// Called by the fibre itself.
  void yield(Fibre& fibre) { switch_back(fibre, false); }
  /// Called by the fibre itself, or by a handler of a signal that it raised: the fibre never goes
  /// on.
  [[noreturn]] void abandon(Fibre& fibre);

 private:
  static void start(unsigned high, unsigned low);
  void prepare(Fibre& fibre);
  void switch_back(Fibre& fibre, bool for_ever);

  const ContextCode code_;
  std::deque<Fibre> fibres_;
  ucontext_t main_{};
  void* main_fake_stack_ = nullptr;
  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
  void* main_sanitizer_fibre_ = nullptr;
};

}  // namespace maco::runtime
