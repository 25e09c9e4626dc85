#include "runtime/cpu/fibres.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/cpu/kernel_guard.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace maco::runtime {
namespace {

constexpr size_t kStackBytes = size_t{4} << 20;  // reserved; pages are allocated when touched

// Thrown through the code that adds a fibre during a run; with_fibres catches it.
struct NoStack {
  std::string reason;
};

// The lowest page can't be touched, so that an overflow stops there.
void* make_stack(size_t others) {
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack != MAP_FAILED && mprotect(stack, 4096, PROT_NONE) == 0) return stack;
  const char* why = std::strerror(errno);
  if (stack != MAP_FAILED) munmap(stack, kStackBytes);
  throw NoStack{fmt::format(
      "no memory for the stack of another fibre beside {}, {} MiB of address space each: {}",
      others, kStackBytes >> 20, why)};
}

}  // namespace

Status with_fibres(const std::function<void()>& body) {
  try {
    body();
  } catch (const NoStack& no) {
    return Status::failure(no.reason);
  }
  return {};
}

ContextCode code_of(const CpuLibrary& library, CpuLibrary::Entry entry) {
  return {[entry](CpuContext& context) { entry(*context.launch); },
          [&library](CpuContext& context) {
            note_running(context);
            library.enter(&context);
          }};
}

FibreThread::FibreThread(ContextCode code) : code_(std::move(code)) {
#if defined(__SANITIZE_THREAD__)
  main_sanitizer_fibre_ = __tsan_get_current_fiber();
#endif
}

FibreThread::~FibreThread() {
  for (Fibre& fibre : fibres_) {
#if defined(__SANITIZE_ADDRESS__)
    // Clears AddressSanitizer's marks of the abandoned frames.
    if (!fibre.ended) __asan_unpoison_memory_region(fibre.stack, kStackBytes);
#endif
    munmap(fibre.stack, kStackBytes);
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fibre.sanitizer_fibre);
#endif
  }
}

Fibre& FibreThread::add(CpuContext& context, void* executor) {
  void* stack = make_stack(fibres_.size());
  Fibre& fibre = fibres_.emplace_back();
  fibre.stack = stack;
  fibre.context = &context;
  fibre.executor = executor;
  fibre.thread = this;
  context.executor = &fibre;
  prepare(fibre);
  return fibre;
}

// A separate function: getcontext returns like setjmp, so that compilers treat locals around it
// with caution.
void FibreThread::prepare(Fibre& fibre) {
  getcontext(&fibre.state);
  fibre.state.uc_stack.ss_sp = fibre.stack;
  fibre.state.uc_stack.ss_size = kStackBytes;
  fibre.state.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(&fibre);
  makecontext(&fibre.state, reinterpret_cast<void (*)()>(start), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
#if defined(__SANITIZE_THREAD__)
  fibre.sanitizer_fibre = __tsan_create_fiber(0);
#endif
}

void FibreThread::resume(Fibre& fibre) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&main_fake_stack_, fibre.stack, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fibre.sanitizer_fibre, 0);
#endif
  code_.enter(*fibre.context);
  swapcontext(&main_, &fibre.state);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
}

void FibreThread::switch_back(Fibre& fibre, bool for_ever) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fibre.fake_stack, main_stack_,
                                 main_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(main_sanitizer_fibre_, 0);
#endif
  (void)for_ever;
  swapcontext(&fibre.state, &main_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fibre.fake_stack, &main_stack_, &main_stack_bytes_);
#endif
}

// Not by swapcontext: a handler runs on a stack of its own, whose state isn't kept.
void FibreThread::abandon(Fibre& fibre) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, main_stack_, main_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(main_sanitizer_fibre_, 0);
#endif
  (void)fibre;
  setcontext(&main_);
  std::abort();
}

void FibreThread::start(unsigned high, unsigned low) {
  Fibre& fibre = *reinterpret_cast<Fibre*>(uintptr_t{high} << 32 | low);
  FibreThread& thread = *fibre.thread;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &thread.main_stack_, &thread.main_stack_bytes_);
#endif
  thread.code_.run(*fibre.context);
  fibre.ended = true;
  thread.switch_back(fibre, true);
}

}  // namespace maco::runtime
