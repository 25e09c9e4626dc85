// Threads of a simulated CTA as fibres: they take turns, and change at barriers.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace device_fibres {

class Pages {
 public:
  static constexpr size_t kBytes = 16384, kMost = 1024;
  // One behind the other, as in a ring that never ends.
  char* push(size_t bytes) {
    if (!memory_) memory_.reset(static_cast<char*>(std::aligned_alloc(1024, kBytes * kMost)));
    if (bytes > kBytes || count_ == kMost) throw std::logic_error("no such page");
    std::memset(memory_.get() + count_ * kBytes, 0xff, kBytes);
    ++count_;
    return back();
  }
  char* back() { return memory_.get() + (count_ - 1) * kBytes; }
  const char* at(size_t i) const {
    if (i >= count_)
      throw std::logic_error("the consumers wait for a page that the loader never fills");
    return memory_.get() + i * kBytes;
  }
  const char* first() const { return memory_.get(); }
  size_t size() const { return count_; }
  void clear() { count_ = 0; }

 private:
  std::unique_ptr<char, void (*)(void*)> memory_{nullptr, &std::free};
  size_t count_ = 0;
};

struct State {
  static constexpr size_t kStack = 96 * 1024;
  std::vector<ucontext_t> fibres;
  std::vector<std::unique_ptr<char[]>> stacks;
  std::vector<bool> done;
  ucontext_t main;
  std::function<void()> body;
  size_t current = 0, left = 0;
  std::vector<int> arrived;
  std::vector<unsigned> generation;
  std::unique_ptr<char, void (*)(void*)> memory{nullptr, &std::free};
  Pages pages;
  std::string failure;
};
inline State& state() {
  static State s;
  return s;
}
inline int thread() { return static_cast<int>(state().current); }
inline char* memory() { return state().memory.get(); }
inline Pages& pages() { return state().pages; }

inline void reset(size_t bytes) {
  State& s = state();
  s.memory.reset(static_cast<char*>(std::aligned_alloc(1024, (bytes + 1023) / 1024 * 1024)));
  std::memset(s.memory.get(), 0xff, bytes);
  s.pages.clear();
  s.current = 0;
}

// To the next thread that has not ended; to the main context if none is left.
inline void yield() {
  State& s = state();
  const size_t from = s.current;
  if (s.left == 0) {
    swapcontext(&s.fibres[from], &s.main);
    return;
  }
  do s.current = (s.current + 1) % s.fibres.size();
  while (s.done[s.current]);
  if (s.current != from) swapcontext(&s.fibres[from], &s.fibres[s.current]);
}

inline void barrier(int group, int threads) {
  if (threads == 1) return;
  State& s = state();
  const auto g = static_cast<size_t>(group);
  const unsigned before = s.generation[g];
  if (++s.arrived[g] == threads) {
    s.arrived[g] = 0;
    ++s.generation[g];
    return;
  }
  while (s.generation[g] == before) yield();
}

inline void enter() {
  State& s = state();
  try {
    s.body();
  } catch (const std::exception& e) {
    s.failure = e.what();
  }
  s.done[s.current] = true;
  --s.left;
  yield();
}

// Runs body on each of `threads` threads.
inline void run(int threads, std::function<void()> body) {
  State& s = state();
  if (threads == 1) return body();
  const auto n = static_cast<size_t>(threads);
  s.body = std::move(body);
  s.failure.clear();
  s.fibres.assign(n, {});
  s.done.assign(n, false);
  s.arrived.assign(n + 1, 0);
  s.generation.assign(n + 1, 0);
  s.left = n;
  while (s.stacks.size() < n) s.stacks.emplace_back(new char[State::kStack]);
  for (size_t i = 0; i < n; ++i) {
    getcontext(&s.fibres[i]);
    s.fibres[i].uc_stack.ss_sp = s.stacks[i].get();
    s.fibres[i].uc_stack.ss_size = State::kStack;
    s.fibres[i].uc_link = nullptr;
    makecontext(&s.fibres[i], &enter, 0);
  }
  s.current = 0;
  swapcontext(&s.main, &s.fibres[0]);
  if (!s.failure.empty()) throw std::logic_error(s.failure);
}

}  // namespace device_fibres
