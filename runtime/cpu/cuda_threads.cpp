#include "runtime/cpu/cuda_threads.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/cpu/block_guard.h"
#include "runtime/cpu/fibres.h"

namespace maco::runtime {

namespace {

// As maco_cuda::Host of cuda/block.h.
struct Host {
  bool (*run)(int threads, void (*body)(void* argument, int i), void* argument,
              const unsigned long long* progress) = nullptr;
  void (*next)() = nullptr;
  void (*stop)(const char* said) = nullptr;
};

/// The block that this system thread runs, and the fibre that is running.
struct Running {
  FibreThread* fibres = nullptr;
  Fibre* fibre = nullptr;
  GuardedBlock* guard = nullptr;
};
thread_local Running running;

struct Body {
  void (*run)(void*, int) = nullptr;
  void* argument = nullptr;
};

bool run(int threads, void (*body)(void*, int), void* argument,
         const unsigned long long* progress) {
  const Running outer = running;
  std::deque<CpuContext> contexts(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) contexts[static_cast<size_t>(i)].cta = i;
  FibreThread fibres({[body, argument](CpuContext& context) {
                        running.guard->enter();
                        body(argument, context.cta);
                        running.guard->leave();
                      },
                      [](CpuContext&) {}});
  GuardedBlock guard(fibres);
  bool ended = false;
  const Status status = with_fibres([&] {
    for (CpuContext& context : contexts) fibres.add(context, nullptr);
    for (;;) {
      const unsigned long long before = *progress;
      bool left = false;
      for (Fibre& fibre : fibres.fibres()) {
        if (fibre.ended) continue;
        running = {&fibres, &fibre, &guard};
        guard.turn(fibre);
        fibres.resume(fibre);
        if (guard.given_up()) return;
        if (fibre.ended) guard.progress();
        left = left || !fibre.ended;
      }
      ended = !left;
      if (!left || *progress == before) return;
    }
  });
  running = outer;
  return status && ended && guard.ended_well();
}

void next() {
  GuardedBlock* const guard = running.guard;
  guard->leave();
  running.fibres->yield(*running.fibre);
  guard->enter();
}

void stop(const char* said) {
  GuardedBlock* const guard = running.guard;
  if (!guard->guarded()) std::abort();
  guard->leave();
  if (said) std::fputs(said, stderr);
  guard->give_up(BlockEnd::Aborted, nullptr);
}

}  // namespace

void give_cuda_threads(void* library) {
  const auto give = reinterpret_cast<void (*)(const Host*)>(dlsym(library, "maco_cuda_host"));
  static constexpr Host host = {run, next, stop};
  if (give) give(&host);
}

}  // namespace maco::runtime
