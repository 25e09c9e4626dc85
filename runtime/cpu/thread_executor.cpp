// thread_executor.cpp: contexts as threads, which may be many more than the machine's CPUs.
//
// A thread that polls in vain spins a little, then yields, then sleeps until there is a store to a
// word of the same bucket (each bucket has a futex). The buckets must not order what kernels do, or
// ThreadSanitizer would miss a signal without a release: they are relaxed atomics and system calls.
// Sleeps are bounded, so that nothing depends on being woken.
#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/cpu/executor.h"
#include "runtime/cpu/kernel_guard.h"

namespace maco::runtime {
namespace {

struct alignas(64) Bucket {
  std::atomic<uint32_t> changes{0};
  std::atomic<uint32_t> sleepers{0};
};
constexpr size_t kBuckets = 4096;
using Buckets = std::array<Bucket, kBuckets>;

Bucket& bucket_of(Buckets& buckets, const void* word) {
  const auto address = reinterpret_cast<uintptr_t>(word) >> 6;
  return buckets[(address ^ (address >> 12)) % kBuckets];
}

struct ThreadState {
  Buckets* buckets = nullptr;
  bool alone = true;
  bool jitter = false;
  Random random{0};
  uint32_t until_delay = 0, gap = 1;  // places where a delay may be, before the next one
  // A sleep takes two steps, between which the word is polled once more. First the thread registers
  // in `bucket` at `seen`, then it sleeps.
  Bucket* bucket = nullptr;
  const void* word = nullptr;
  uint32_t seen = 0;
  uint32_t sleeps = 0;

  void leave_bucket() {
    if (bucket) bucket->sleepers.fetch_sub(1, std::memory_order_relaxed);
    bucket = nullptr;
  }
};

ThreadState& state_of(maco_cpu::RoleContext* context) {
  return *static_cast<ThreadState*>(static_cast<CpuContext*>(context)->executor);
}

uint64_t now(maco_cpu::RoleContext*) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// Within a task the gaps between delays grow, so that a task with a million packets has some dozens
// of delays.
void delay(ThreadState& state) {
  if (!state.jitter) return;
  if (state.until_delay > 0) {
    --state.until_delay;
    return;
  }
  state.gap = std::min<uint32_t>(state.gap * 2, 1u << 16);
  state.until_delay = static_cast<uint32_t>(state.random.below(state.gap));
  const uint64_t draw = state.random.below(16);
  if (draw < 2) {
    std::this_thread::sleep_for(std::chrono::microseconds(state.random.below(300)));
  } else if (draw < 10) {
    sched_yield();
  }
}

void pause(maco_cpu::RoleContext* context, const void* word, unsigned spins) {
  ThreadState& state = state_of(context);
  delay(state);
  if (spins == 1) state.sleeps = 0;
  if (spins <= 4) return;
  if (spins <= 12) {
    sched_yield();
    return;
  }
  Bucket& bucket = bucket_of(*state.buckets, word);
  if (state.bucket != &bucket || state.word != word) {
    state.leave_bucket();
    bucket.sleepers.fetch_add(1, std::memory_order_relaxed);
    state.seen = bucket.changes.load(std::memory_order_relaxed);
    state.bucket = &bucket;
    state.word = word;
    return;
  }
  // Nobody wakes a thread that waits for another process.
  constexpr long kMillisecond = 1000000;
  const uint32_t times = std::min<uint32_t>(state.sleeps++, 5);
  const long most =
      state.alone ? std::min(2L << times, 40L) * kMillisecond : (kMillisecond / 16) << times;
  timespec length{0, most};
  syscall(SYS_futex, &bucket.changes, FUTEX_WAIT_PRIVATE, state.seen, &length, nullptr, 0);
  state.leave_bucket();
}

void changing(maco_cpu::RoleContext* context, const void*) { delay(state_of(context)); }

void wake(Buckets& buckets, const void* word) {
  Bucket& bucket = bucket_of(buckets, word);
  bucket.changes.fetch_add(1, std::memory_order_relaxed);
  if (bucket.sleepers.load(std::memory_order_relaxed) != 0) {
    syscall(SYS_futex, &bucket.changes, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
  }
}
void changed(maco_cpu::RoleContext* context, const void* word) {
  wake(*state_of(context).buckets, word);
}

void task(maco_cpu::RoleContext* context, int place, bool begins) {
  ThreadState& state = state_of(context);
  if (begins) {
    state.gap = 1;
    state.until_delay = 0;
    delay(state);
  }
  note_task(*static_cast<CpuContext*>(context), place, begins);
}

}  // namespace

Status run_on_threads(const CpuLibrary& library, CpuLibrary::Entry entry, CpuContexts& contexts,
                      const uint64_t* jitter, bool alone, Beside* beside) {
  auto buckets = std::make_unique<Buckets>();
  std::vector<ThreadState> states(contexts.size());
  std::vector<std::thread> threads;
  threads.reserve(contexts.size());
  // Contexts wait for each other, so that none begins before all have a thread.
  enum : int { kHold, kBegin, kLeave };
  std::atomic<int> order{kHold};
  const auto give = [&](int what) {
    order.store(what, std::memory_order_release);
    order.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  for (size_t i = 0; i < contexts.size(); ++i) {
    CpuContext& context = contexts[i];
    ThreadState& state = states[i];
    state.buckets = buckets.get();
    state.alone = alone;
    if (jitter) {
      state.jitter = true;
      state.random = Random(Random(*jitter ^ uint64_t{context.launch->epoch} << 32 ^ i).next());
    }
    context.executor = &state;
    context.now = now;
    context.pause = pause;
    context.changing = changing;
    context.changed = changed;
    context.task = task;
    try {
      threads.emplace_back([&library, &order, entry, &context, &state] {
        order.wait(kHold, std::memory_order_acquire);
        if (order.load(std::memory_order_acquire) == kLeave) return;
        const GuardedThread guarded(context);
        library.enter(&context);
        entry(*context.launch);
        state.leave_bucket();
      });
    } catch (const std::exception& error) {  // of threads (std::system_error) or of memory
      const size_t started = threads.size();
      give(kLeave);
      return Status::failure(
          fmt::format("the kernel needs {} threads on the CPU, but the system gave only {} ({}): "
                      "raise the limit ('ulimit -u'), compile for "
                      "fewer SMs, or run it on one thread with --replay",
                      contexts.size(), started, error.what()));
    }
  }
  std::atomic<bool> over{false};
  Status status;  // of the work beside; contexts that wait for it give up by themselves
  std::thread companion;
  try {
    if (beside)
      companion = std::thread([&] {
        const auto tell = [&](const void* word) { wake(*buckets, word); };
        try {
          while (!over.load(std::memory_order_acquire))
            if (!beside->step(tell)) std::this_thread::sleep_for(std::chrono::microseconds(20));
        } catch (const std::exception& error) {  // of memory
          status = Status::failure(
              fmt::format("what the kernel hands over can't be carried out: {}", error.what()));
        }
      });
  } catch (const std::exception& error) {  // of threads
    give(kLeave);
    return Status::failure(
        fmt::format("there is no thread for what the kernel hands over: {}", error.what()));
  }
  give(kBegin);
  over.store(true, std::memory_order_release);
  if (companion.joinable()) companion.join();
  return status;
}

}  // namespace maco::runtime
