#include "compiler/verify/own_clocks.h"

#include <algorithm>

#include "ir/check.h"

namespace maco::verify {
namespace {

/// What was made of a pair of clocks; neighbouring ranks mostly have the same pair.
struct Made {
  uint32_t a = ~0u, b = ~0u, result = ~0u;
};

}  // namespace

OwnClocks::OwnClocks(const Model& model)
    : model_(model), streams_(static_cast<uint32_t>(model.streams.size())) {
  words_.assign(streams_, 0);
  users_ = {1};
  live_.assign(static_cast<size_t>(model.followed) * streams_, 0);
  users_[0] += static_cast<uint32_t>(live_.size());
  events_.resize(model.program.events.size());
  for (size_t e = 0; e < events_.size(); ++e) {
    if (model.program.events[e].kind != ir::EventKind::Local) continue;
    for (const Model::Waiter& w : model.waiters[e])
      if (w.lag == 0) ++events_[e].waits;
  }
}

uint32_t OwnClocks::allocate() {
  if (!free_.empty()) {
    const uint32_t id = free_.back();
    free_.pop_back();
    users_[id] = 1;
    return id;
  }
  words_.resize(words_.size() + streams_);
  users_.push_back(1);
  return static_cast<uint32_t>(users_.size() - 1);
}

/// One that knows what both know; of stream `except` it may know less.
uint32_t OwnClocks::join(uint32_t a, uint32_t b, uint32_t except) {
  int32_t less = 0, more = 0;  // of differences: whether one is negative
  {
    const int32_t *x = words(a), *y = words(b);
    const auto compare = [&](uint32_t first, uint32_t last) {
      for (uint32_t i = first; i < last; ++i) {
        less |= x[i] - y[i];
        more |= y[i] - x[i];
      }
    };
    compare(0, except);
    compare(except + 1, streams_);
  }
  if (more >= 0) return keep(b);
  if (less >= 0) return keep(a);
  return join_and_raise(a, b, except, 0);
}

uint32_t OwnClocks::join_and_raise(uint32_t a, uint32_t b, uint32_t stream, int32_t count) {
  const uint32_t id = allocate();
  int32_t* to = words_.data() + size_t{id} * streams_;
  const int32_t *x = words(a), *y = words(b);
  for (uint32_t i = 0; i < streams_; ++i) to[i] = std::max(x[i], y[i]);
  to[stream] = std::max(to[stream], count);
  return id;
}

void OwnClocks::start(uint32_t t) {
  const ir::Task& task = model_.program.tasks[t];
  stream_ = model_.stream_of[t];
  place_ = task.place;
  for (const ir::Wait& w : task.waits) {
    // The launches of a rank follow each other anyway.
    if (model_.event(w.event).kind != ir::EventKind::Local || w.lag > 0) continue;
    Held& held = events_[index(w.event)];
    MACO_CHECK(!held.clocks.empty(), "a wait before its signals in topological order");
    Made made;
    for (int r = 0; r < model_.followed; ++r) {
      if (!model_.runs(t, r)) continue;
      uint32_t& at = live(r, stream_);
      const uint32_t told = held.clocks[static_cast<size_t>(r)];
      if (at == told) continue;
      if (made.a != at || made.b != told) {
        if (made.result != ~0u) drop(made.result);
        made = {at, told, join(at, told, stream_)};
      }
      keep(made.result);
      drop(at);
      at = made.result;
    }
    if (made.result != ~0u) drop(made.result);
    if (--held.waits > 0) continue;
    for (const uint32_t clock : held.clocks) drop(clock);
    held.clocks = {};
  }
  make_views(t);
}

void OwnClocks::make_views(uint32_t t) {
  views_.clear();
  if (model_.symmetric) {
    views_.push_back({~uint64_t{0}, words(live(0, stream_))});
    return;
  }
  view_clocks_.clear();
  for (int r = 0; r < model_.followed; ++r) {
    if (!model_.runs(t, r)) continue;
    const uint32_t clock = live(r, stream_);
    size_t i = 0;
    while (i < views_.size() && view_clocks_[i] != clock) ++i;
    if (i == views_.size()) {
      views_.push_back({0, words(clock)});
      view_clocks_.push_back(clock);
    }
    views_[i].ranks |= uint64_t{1} << r;
  }
}

void OwnClocks::end(uint32_t t) {
  for (const ir::Signal& s : model_.program.tasks[t].signals) {
    Held& held = events_[index(s.event)];
    if (held.waits == 0) continue;  // nobody waits, or it isn't Local
    if (held.clocks.empty()) {
      held.clocks.assign(static_cast<size_t>(model_.followed), 0);
      users_[0] += static_cast<uint32_t>(model_.followed);
    }
    Made made;
    for (int r = 0; r < model_.followed; ++r) {
      uint32_t& at = held.clocks[static_cast<size_t>(r)];
      const uint32_t now = live(r, stream_);
      if (made.a != at || made.b != now) {
        if (made.result != ~0u) drop(made.result);
        made = {at, now, join_and_raise(at, now, stream_, place_ + 1)};
      }
      keep(made.result);
      drop(at);
      at = made.result;
    }
    if (made.result != ~0u) drop(made.result);
  }
}

}  // namespace maco::verify
