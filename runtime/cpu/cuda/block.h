// block.h: what words.h needs from the code that runs a block of CUDA threads, each of which is a
// fibre. It is part of every shared object with users' kernels. The runtime tells such an object
// how fibres are run (runtime/cpu/cuda_threads.h).

#pragma once

#include <string.h>

namespace maco_cuda {

/// Functions of the runtime. All fibres of a block belong to one system thread.
struct Host {
  /// Runs `body(argument, i)` for each i below `threads`, in turns: each runs until it calls `next`
  /// or ends. Returns false when all that are left call `next` and `*progress` stays the same: none
  /// of them will ever go on, and they are given up.
  bool (*run)(int threads, void (*body)(void* argument, int i), void* argument,
              const unsigned long long* progress) = nullptr;
  /// Lets the other fibres run.
  void (*next)() = nullptr;
  /// Gives the block up, and doesn't return. `said`, a line for standard error, may be null.
  void (*stop)(const char* said) = nullptr;
};

struct Index {
  unsigned x, y, z;
};

constexpr int kMostThreads = 1024, kLanes = 32;

/// Lanes of a warp that meet.
struct Meeting {
  unsigned mask = 0;  // the lanes asked for; 0: no meeting is in progress
  unsigned arrived = 0, left = 0;
  bool open = false;  // all have arrived
  unsigned long long values[kLanes];
};

/// Lanes of a warp that ask which lanes are with them.
struct Gathering {
  unsigned mask = 0, round = 0;
  unsigned closed[2];  // for even and odd rounds
};

struct Block {
  Index at, extent, grid;
  int threads = 0;
  char* shared = nullptr;  // of the block, by the caller's numbering
  int dynamic_at = 0;      // where its dynamic part begins
  int alive = 0;           // threads that haven't returned
  bool returned[kMostThreads];
  // The barrier.
  int arrived = 0, votes = 0;
  unsigned round = 0;
  int counted[2];  // votes of even and odd rounds
  int present[2];  // threads that met in these rounds
  Meeting meetings[kMostThreads / kLanes][kLanes];
  Gathering gatherings[kMostThreads / kLanes];
  unsigned long long progress = 0;
};

static Host host;
static thread_local Block* block = nullptr;
static thread_local int thread = 0;  // in the block; a fibre restores it when it goes on

/// Memory for a block, in system threads that run blocks; too much for a stack.
inline Block& block_of_thread() {
  static thread_local Block own;
  return own;
}

inline void wait() {
  const int self = thread;
  Block* const own = block;
  host.next();
  thread = self;
  block = own;
}

[[noreturn]] inline void stop(const char* said) {
  host.stop(said);
  __builtin_trap();
}

inline Index thread_index() {
  const unsigned t = static_cast<unsigned>(thread), x = block->extent.x, y = block->extent.y;
  return {t % x, t / x % y, t / x / y};
}
inline Index block_index() { return block->at; }
inline Index block_extent() { return block->extent; }
inline Index grid_extent() { return block->grid; }
inline int linear_thread() { return thread; }
inline int block_threads() { return block->threads; }
inline char* dynamic_shared() { return block->shared + block->dynamic_at; }

inline void open_barrier() {
  Block& b = *block;
  if (b.arrived == 0 || b.arrived < b.alive) return;
  b.counted[b.round & 1] = b.votes;
  b.present[b.round & 1] = b.arrived;
  b.arrived = b.votes = 0;
  ++b.round;
  ++b.progress;
}
/// Returns how many of the threads that haven't returned voted true, and in `there` how many there
/// were.
inline int meet(bool vote, int& there) {
  Block& b = *block;
  const unsigned round = b.round;
  b.votes += vote ? 1 : 0;
  ++b.arrived;
  open_barrier();
  while (b.round == round) wait();
  there = b.present[round & 1];
  return b.counted[round & 1];
}
inline void block_sync() {
  int there;
  meet(false, there);
}
inline int block_sync_count(bool value) {
  int there;
  return meet(value, there);
}
inline bool block_sync_and(bool value) {
  int there;
  const int votes = meet(value, there);
  return votes == there;
}
inline bool block_sync_or(bool value) {
  int there;
  return meet(value, there) > 0;
}

inline unsigned lanes_of(int warp) {
  unsigned mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int t = warp * kLanes + lane;
    if (t < block->threads && !block->returned[t]) mask |= 1u << lane;
  }
  return mask;
}
/// The lanes that arrive before the others go on: those that a branch of the warp has left
/// together.
inline unsigned active_lanes() {
  Gathering& g = block->gatherings[thread / kLanes];
  const unsigned round = g.round;
  g.mask |= 1u << thread % kLanes;
  ++block->progress;
  wait();
  if (g.round == round) {
    g.closed[round & 1] = g.mask;
    g.mask = 0;
    ++g.round;
  }
  ++block->progress;
  return g.closed[round & 1];
}

inline void open_meetings(int warp) {
  const unsigned there = lanes_of(warp);
  for (Meeting& m : block->meetings[warp])
    if (m.mask != 0 && !m.open && (m.mask & there & ~m.arrived) == 0) {
      m.open = true;
      ++block->progress;
    }
}
inline unsigned warp_exchange(unsigned mask, unsigned long long value,
                              unsigned long long (&all)[kLanes]) {
  const int warp = thread / kLanes, lane = thread % kLanes;
  const unsigned self = 1u << lane;
  mask |= self;
  Meeting* meeting = nullptr;
  for (;;) {
    for (Meeting& m : block->meetings[warp])
      if (m.mask == mask && !m.open && (m.arrived & self) == 0) meeting = &m;
    // An earlier meeting of the same lanes must end first, if not all of them have left it.
    bool busy = false;
    for (Meeting& m : block->meetings[warp])
      busy = busy ||
             (m.mask != 0 && m.open && (m.mask & self) != 0 && (m.arrived & ~m.left & self) != 0);
    if (!meeting && !busy)
      for (Meeting& m : block->meetings[warp])
        if (m.mask == 0) {
          meeting = &m;
          m = Meeting();
          m.mask = mask;
          break;
        }
    if (meeting) break;
    wait();
  }
  meeting->values[lane] = value;
  meeting->arrived |= self;
  open_meetings(warp);
  while (!meeting->open) wait();
  const unsigned met = meeting->arrived;
  memcpy(all, meeting->values, sizeof all);
  meeting->left |= self;
  if (meeting->left == met) meeting->mask = 0;
  return met;
}

struct Launch {
  void (*body)(void*);
  void* argument;
  Block* block;
};
inline void run_thread(void* launch, int i) {
  const Launch& l = *static_cast<Launch*>(launch);
  block = l.block;
  thread = i;
  l.body(l.argument);
  block->returned[i] = true;
  --block->alive;
  ++block->progress;
  open_barrier();
  open_meetings(i / kLanes);
}
/// Runs a block whose places, extents and memory are set. Returns false if its threads wait for
/// each other and none can go on.
inline bool run_block(Block& b, void (*body)(void*), void* argument) {
  b.alive = b.threads;
  b.arrived = b.votes = 0;
  for (bool& r : b.returned) r = false;
  for (Gathering& g : b.gatherings) g.mask = 0;
  for (auto& warp : b.meetings)
    for (Meeting& m : warp) m.mask = 0;
  Launch launch{body, argument, &b};
  const bool ended = host.run(b.threads, run_thread, &launch, &b.progress);
  block = nullptr;
  return ended;
}

}  // namespace maco_cuda

extern "C" __attribute__((visibility("default"))) void maco_cuda_host(
    const maco_cuda::Host* given) {
  maco_cuda::host = *given;
}
