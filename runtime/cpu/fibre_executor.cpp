// fibre_executor.cpp: runs contexts as fibres of one thread; the seed decides which fibre runs
// next.
//
// A fibre that polled a word in vain can't go on before there is a store to that word, so it isn't
// chosen until then. When no fibre can be chosen, only time can pass: the virtual clock jumps,
// waiters look at it, and the first whose deadline has passed stops the run as it would on a GPU.
#include <map>
#include <vector>

#include "ir/check.h"
#include "runtime/cpu/executor.h"
#include "runtime/cpu/fibres.h"

namespace maco::runtime {
namespace {

constexpr int kJumpsWithoutChange = 64;

class Fibres {
 public:
  Fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts, uint64_t seed,
         Beside* beside);
  void run();

 private:
  static Fibre& fibre_of(maco_cpu::RoleContext* c) {
    return *static_cast<Fibre*>(static_cast<CpuContext*>(c)->executor);
  }
  static Fibres& owner_of(const Fibre& fibre) { return *static_cast<Fibres*>(fibre.executor); }
  static uint64_t now(maco_cpu::RoleContext* c) { return owner_of(fibre_of(c)).clock_; }
  static void pause(maco_cpu::RoleContext* c, const void* word, unsigned spins);
  static void changing(maco_cpu::RoleContext* c, const void* word);
  static void changed(maco_cpu::RoleContext* c, const void* word);
  static void task(maco_cpu::RoleContext* c, int place, bool begins);

  void pass_time();
  // Does a step of the work beside the contexts; returns whether it did anything.
  bool step_beside();
  void tell(const void* word);

  FibreThread thread_;
  std::vector<Fibre*> ready_;
  // By word. Used only for look-ups, as addresses differ from run to run.
  std::map<const void*, std::vector<Fibre*>> waiting_;
  size_t waiting_count_ = 0;
  Random random_;
  uint64_t clock_ = 1;
  uint64_t quarter_ns_ = 0;
  int jumps_ = 0;
  Beside* const beside_;
};

Fibres::Fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts,
               uint64_t seed, Beside* beside)
    : thread_(code_of(library, entry)), random_(seed), beside_(beside) {
  for (CpuContext& context : contexts) {
    context.now = now;
    context.pause = pause;
    context.changing = changing;
    context.changed = changed;
    context.task = task;
    quarter_ns_ = context.launch->timeout_ns / 4;
    ready_.push_back(&thread_.add(context, this));
  }
}

void Fibres::run() {
  while (!ready_.empty() || waiting_count_ > 0) {
    // It is chosen as often as any fibre, and whenever no fibre can go on.
    if (beside_ && (ready_.empty() || random_.below(ready_.size() + 1) == 0) && step_beside())
      continue;
    if (ready_.empty()) {
      pass_time();
      continue;
    }
    const auto choice = static_cast<size_t>(random_.below(ready_.size()));
    Fibre* fibre = ready_[choice];
    ready_[choice] = ready_.back();
    ready_.pop_back();
    thread_.resume(*fibre);
  }
}

bool Fibres::step_beside() {
  return beside_->step([this](const void* word) { tell(word); });
}

void Fibres::pass_time() {
  MACO_CHECK(++jumps_ <= kJumpsWithoutChange, "a wait of the kernel has no deadline");
  clock_ += quarter_ns_ + 1;
  // In the order of indices, not of addresses: the order must be the same in every run.
  waiting_.clear();
  waiting_count_ = 0;
  for (Fibre& fibre : thread_.fibres()) {
    if (!fibre.ended) ready_.push_back(&fibre);
  }
}

void Fibres::pause(maco_cpu::RoleContext* c, const void* word, unsigned) {
  Fibre& fibre = fibre_of(c);
  Fibres& owner = owner_of(fibre);
  owner.waiting_[word].push_back(&fibre);
  ++owner.waiting_count_;
  owner.thread_.yield(fibre);
}

void Fibres::changing(maco_cpu::RoleContext* c, const void*) {
  Fibre& fibre = fibre_of(c);
  Fibres& owner = owner_of(fibre);
  if (owner.random_.below(2) == 0) return;
  owner.ready_.push_back(&fibre);
  owner.thread_.yield(fibre);
}

void Fibres::changed(maco_cpu::RoleContext* c, const void* word) {
  owner_of(fibre_of(c)).tell(word);
}

void Fibres::tell(const void* word) {
  jumps_ = 0;
  auto found = waiting_.find(word);
  if (found == waiting_.end()) return;
  waiting_count_ -= found->second.size();
  ready_.insert(ready_.end(), found->second.begin(), found->second.end());
  waiting_.erase(found);
}

void Fibres::task(maco_cpu::RoleContext* c, int place, bool begins) {
  Fibre& fibre = fibre_of(c);
  Fibres& owner = owner_of(fibre);
  note_task(*fibre.context, place, begins);
  if (!begins) return;
  owner.ready_.push_back(&fibre);
  owner.thread_.yield(fibre);
}

}  // namespace

Status run_on_fibres(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts,
                     uint64_t seed, Beside* beside) {
  if (contexts.empty()) return {};
  return with_fibres([&] {
    Fibres fibres(library, entry, contexts,
                  Random(seed ^ uint64_t{contexts.front().launch->epoch} << 32).next(), beside);
    fibres.run();
  });
}

}  // namespace maco::runtime
