#include "compiler/verify/clocks.h"

#include <algorithm>

#include "ir/check.h"

namespace maco::verify {

using ir::EventKind;

Clocks::Clocks(const Model& model)
    : model_(model),
      streams_(model.streams.size()),
      width_(static_cast<size_t>(model.world) * streams_),
      planes_(model.has_packets ? 2 : 1) {
  const auto followed = static_cast<size_t>(model.followed);
  pool_.assign(followed * streams_ * planes_ * width_, 0);
  const size_t events = model.program.events.size();
  local_.resize(followed * events);
  local_readers_.resize(followed * events);
  for (size_t r = 0; r < followed; ++r)
    for (size_t e = 0; e < events; ++e)
      for (const Model::Waiter& w : model.waiters[e])
        if (w.lag == 0 && model.runs(w.task, static_cast<int>(r))) ++local_readers_[r * events + e];
}

uint32_t Clocks::allocate() {
  if (!free_.empty()) {
    const uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  const size_t id = pool_.size() / (planes_ * width_);
  pool_.resize(pool_.size() + planes_ * width_);
  return static_cast<uint32_t>(id);
}

void Clocks::join(Word* to, const Word* from, size_t planes, size_t first_plane,
                  int rotation) const {
  // Block x of the source, seen from `rotation` ranks further, is block x + rotation.
  const auto turn = static_cast<size_t>(rotation) * streams_;
  const auto join_words = [](Word* a, const Word* b, size_t n) {
    for (size_t i = 0; i < n; ++i) a[i] = std::max(a[i], b[i]);
  };
  for (size_t p = first_plane; p < first_plane + planes; ++p) {
    join_words(to + p * width_ + turn, from + p * width_, width_ - turn);
    join_words(to + p * width_, from + p * width_ + width_ - turn, turn);
  }
}

void Clocks::begin_launch(int launch) {
  launch_ = launch;
  if (launch == 0) return;
  // On a rank, all of a launch precedes the next.
  for (int r = 0; r < model_.followed; ++r) {
    for (uint32_t s = 1; s < streams_; ++s) join(live(r, 0), live(r, s), planes_, 0, 0);
    for (uint32_t s = 1; s < streams_; ++s) std::copy_n(live(r, 0), planes_ * width_, live(r, s));
  }
}

void Clocks::start(Node node) {
  if (!model_.runs(node.task, node.rank)) return;
  const size_t events = model_.program.events.size();
  Word* to = live(node.rank, model_.stream_of[node.task]);
  for (const ir::Wait& w : model_.program.tasks[node.task].waits) {
    const EventKind kind = model_.event(w.event).kind;
    const int launch = launch_ - static_cast<int>(w.lag);
    if (launch < 0) continue;  // nothing to wait for yet
    if (kind == EventKind::Local) {
      if (w.lag > 0) continue;  // the launches of a rank follow each other anyway
      Held& held = local_[static_cast<size_t>(node.rank) * events + index(w.event)];
      join(to, clock(held.clock), planes_, 0, 0);
      release(held);
      continue;
    }
    for (int source : resolve(w.from, node.rank, model_.world)) {
      const uint32_t signaller = model_.signaller(w.event, source, node.rank);
      const auto found = sent_.find(key(signaller, model_.symmetric ? 0 : source, launch));
      MACO_CHECK(found != sent_.end(), "a wait before its signal in topological order");
      const int rotation = model_.symmetric ? source : 0;
      const bool packet = kind == EventKind::Packet;
      if (!packet || model_.surely_polls(node.task))
        join(to, clock(found->second.clock), packet ? 1 : planes_, packet ? planes_ - 1 : 0,
             rotation);
      release(found->second);
      if (found->second.readers == 0) sent_.erase(found);
    }
  }
}

void Clocks::end(Node node) {
  const uint32_t stream = model_.stream_of[node.task];
  const size_t own = static_cast<size_t>(node.rank) * streams_ + stream;
  for (size_t p = 0; p < planes_; ++p)
    live(node.rank, stream)[p * width_ + own] = static_cast<Word>(number(node.task, launch_));
  bool peers = false;
  for (const ir::Signal& s : model_.program.tasks[node.task].signals) {
    if (model_.event(s.event).kind != EventKind::Local) {
      peers = true;
      continue;
    }
    const size_t at =
        static_cast<size_t>(node.rank) * model_.program.events.size() + index(s.event);
    if (local_readers_[at] == 0) continue;
    Held& held = local_[at];
    if (held.readers == 0) {
      held = {allocate(), local_readers_[at]};
      std::copy_n(live(node.rank, stream), planes_ * width_, clock(held.clock));
    } else {
      join(clock(held.clock), live(node.rank, stream), planes_, 0, 0);
    }
  }
  if (!peers || !model_.runs(node.task, node.rank)) return;
  if (const uint32_t readers = peer_readers(node)) {
    const uint32_t id = allocate();
    std::copy_n(live(node.rank, stream), planes_ * width_, clock(id));
    sent_.emplace(key(node.task, node.rank, launch_), Held{id, readers});
  }
}

/// How often `start` will ask for what `node` sends in this launch.
uint32_t Clocks::peer_readers(Node node) const {
  uint32_t readers = 0;
  for (const ir::Signal& s : model_.program.tasks[node.task].signals) {
    if (model_.event(s.event).kind == EventKind::Local) continue;
    const auto waiters = model_.waiters[index(s.event)];
    for (int to : resolve(s.to, node.rank, model_.world))
      for (const Model::Waiter& w : waiters)
        if (model_.runs(w.task, to) && names(w.from, to, node.rank, model_.world) &&
            launch_ + static_cast<int>(w.lag) < model_.launches)
          ++readers;
  }
  return readers;
}

}  // namespace maco::verify
