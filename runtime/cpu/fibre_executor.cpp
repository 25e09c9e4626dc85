// fibre_executor.cpp: contexts as fibres of one thread; every choice of who goes next is the seed's.
//
// A fibre that polled a word in vain can't go on before somebody stores to that word, so it isn't chosen until then. When no fibre
// is left to choose, nothing can ever happen again but time: the virtual clock jumps, waiters look at it, and the first whose
// deadline has passed stops the run as it would on a GPU.
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "ir/check.h"
#include "runtime/cpu/executor.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace maco::runtime {
namespace {

constexpr size_t kStackBytes = size_t{4} << 20;  // reserved, not used: pages come when touched
constexpr int kJumpsWithoutChange = 64;

class Fibres;

struct Fibre {
  Fibres* owner = nullptr;
  CpuContext* context = nullptr;
  ucontext_t state{};
  void* stack = nullptr;
  bool ended = false;
  void* fake_stack = nullptr;    // AddressSanitizer's
  void* sanitizer_fibre = nullptr;  // ThreadSanitizer's
};

class Fibres {
 public:
  Fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts, uint64_t seed);
  ~Fibres();
  Fibres(const Fibres&) = delete;
  Fibres& operator=(const Fibres&) = delete;
  void run();

 private:
  static Fibre& fibre_of(maco_cpu::Context* c) { return *static_cast<Fibre*>(static_cast<CpuContext*>(c)->executor); }
  static uint64_t now(maco_cpu::Context* c) { return fibre_of(c).owner->clock_; }
  static void pause(maco_cpu::Context* c, const void* word, unsigned spins);
  static void changing(maco_cpu::Context* c, const void* word);
  static void changed(maco_cpu::Context* c, const void* word);
  static void task(maco_cpu::Context* c, int place, bool begins);
  static void start(unsigned high, unsigned low);

  void prepare(Fibre& fibre);
  void switch_to(Fibre& fibre);
  void switch_back(Fibre& fibre, bool for_ever);
  void pass_time();

  const CpuLibrary& library_;
  CpuLibrary::Entry entry_;
  std::vector<Fibre> fibres_;
  std::vector<Fibre*> ready_;
  std::map<const void*, std::vector<Fibre*>> waiting_;  // by word; looked up, and emptied in order of a sort
  size_t waiting_count_ = 0;
  Random random_;
  uint64_t clock_ = 1;
  uint64_t quarter_ns_ = 0;
  int jumps_ = 0;
  ucontext_t main_{};
  void* main_fake_stack_ = nullptr;
  const void* main_stack_ = nullptr;
  size_t main_stack_bytes_ = 0;
  void* main_sanitizer_fibre_ = nullptr;
};

Fibres::Fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts, uint64_t seed)
    : library_(library), entry_(entry), fibres_(contexts.size()), random_(seed) {
#if defined(__SANITIZE_THREAD__)
  main_sanitizer_fibre_ = __tsan_get_current_fiber();
#endif
  for (size_t i = 0; i < contexts.size(); ++i) {
    Fibre& fibre = fibres_[i];
    CpuContext& context = contexts[i];
    fibre.owner = this;
    fibre.context = &context;
    context.executor = &fibre;
    context.now = now;
    context.pause = pause;
    context.changing = changing;
    context.changed = changed;
    context.task = task;
    quarter_ns_ = context.launch->timeout_ns / 4;
    prepare(fibre);
    ready_.push_back(&fibre);
  }
}

// In a function of its own: getcontext returns like setjmp, and compilers mistrust locals around it.
void Fibres::prepare(Fibre& fibre) {
      fibre.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      MACO_CHECK(fibre.stack != MAP_FAILED, "no memory for the stack of a fibre");
      mprotect(fibre.stack, 4096, PROT_NONE);  // an overflow stops here
      getcontext(&fibre.state);
      fibre.state.uc_stack.ss_sp = fibre.stack;
      fibre.state.uc_stack.ss_size = kStackBytes;
      fibre.state.uc_link = nullptr;
      const auto address = reinterpret_cast<uintptr_t>(&fibre);
      makecontext(&fibre.state, reinterpret_cast<void (*)()>(start), 2, static_cast<unsigned>(address >> 32),
                  static_cast<unsigned>(address));
#if defined(__SANITIZE_THREAD__)
      fibre.sanitizer_fibre = __tsan_create_fiber(0);
#endif
}

Fibres::~Fibres() {
  for (Fibre& fibre : fibres_) {
    munmap(fibre.stack, kStackBytes);
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fibre.sanitizer_fibre);
#endif
  }
}

void Fibres::run() {
  while (!ready_.empty() || waiting_count_ > 0) {
    if (ready_.empty()) {
      pass_time();
      continue;
    }
    const auto choice = static_cast<size_t>(random_.below(ready_.size()));
    Fibre* fibre = ready_[choice];
    ready_[choice] = ready_.back();
    ready_.pop_back();
    switch_to(*fibre);
  }
}

void Fibres::pass_time() {
  MACO_CHECK(++jumps_ <= kJumpsWithoutChange, "a wait of the kernel has no deadline");
  clock_ += quarter_ns_ + 1;
  // By index, not by address: the order must be the same in every run.
  waiting_.clear();
  waiting_count_ = 0;
  for (Fibre& fibre : fibres_) {
    if (!fibre.ended) ready_.push_back(&fibre);
  }
}

void Fibres::switch_to(Fibre& fibre) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&main_fake_stack_, fibre.stack, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fibre.sanitizer_fibre, 0);
#endif
  library_.enter(fibre.context);
  swapcontext(&main_, &fibre.state);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
}

void Fibres::switch_back(Fibre& fibre, bool for_ever) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fibre.fake_stack, main_stack_, main_stack_bytes_);
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

void Fibres::start(unsigned high, unsigned low) {
  Fibre& fibre = *reinterpret_cast<Fibre*>(uintptr_t{high} << 32 | low);
  Fibres& owner = *fibre.owner;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &owner.main_stack_, &owner.main_stack_bytes_);
#endif
  owner.entry_(*fibre.context->launch);
  fibre.ended = true;
  owner.switch_back(fibre, true);
}

void Fibres::pause(maco_cpu::Context* c, const void* word, unsigned) {
  Fibre& fibre = fibre_of(c);
  Fibres& owner = *fibre.owner;
  owner.waiting_[word].push_back(&fibre);
  ++owner.waiting_count_;
  owner.switch_back(fibre, false);
}

void Fibres::changing(maco_cpu::Context* c, const void*) {
  Fibre& fibre = fibre_of(c);
  Fibres& owner = *fibre.owner;
  if (owner.random_.below(2) == 0) return;
  owner.ready_.push_back(&fibre);
  owner.switch_back(fibre, false);
}

void Fibres::changed(maco_cpu::Context* c, const void* word) {
  Fibres& owner = *fibre_of(c).owner;
  owner.jumps_ = 0;
  auto found = owner.waiting_.find(word);
  if (found == owner.waiting_.end()) return;
  owner.waiting_count_ -= found->second.size();
  owner.ready_.insert(owner.ready_.end(), found->second.begin(), found->second.end());
  owner.waiting_.erase(found);
}

void Fibres::task(maco_cpu::Context* c, int place, bool begins) {
  Fibre& fibre = fibre_of(c);
  note_task(*fibre.context, place, begins);
  if (!begins) return;
  fibre.owner->ready_.push_back(&fibre);
  fibre.owner->switch_back(fibre, false);
}

}  // namespace

void run_on_fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts, uint64_t seed) {
  if (contexts.empty()) return;
  Fibres fibres(library, entry, contexts, Random(seed ^ uint64_t{contexts.front().launch->epoch} << 32).next());
  fibres.run();
}

}  // namespace maco::runtime
