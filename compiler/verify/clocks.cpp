#include "compiler/verify/clocks.h"

#include <algorithm>

#include "ir/check.h"

namespace maco::verify {
namespace {

using ir::EventKind;

void join_words(int32_t* to, const int32_t* from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

Clocks::Clocks(const Model& model)
    : model_(model),
      streams_(model.streams.size()),
      width_(static_cast<size_t>(model.world) * streams_),
      planes_(model.has_packets ? 2 : 1) {
  const auto followed = static_cast<size_t>(model.followed);
  own_.assign(followed * streams_ * planes_ * streams_, 0);
  others_of_.assign(followed * streams_, kNone);
  const size_t events = model.program.events.size();
  local_.resize(followed * events);
  local_readers_.resize(followed * events);
  for (size_t r = 0; r < followed; ++r)
    for (size_t e = 0; e < events; ++e)
      for (const Model::Waiter& w : model.waiters[e])
        if (w.lag == 0 && model.runs(w.task, static_cast<int>(r))) ++local_readers_[r * events + e];

  sender_.assign(model.tasks(), kNone);
  for (uint32_t t = 0; t < model.tasks(); ++t) {
    const ir::Task& task = model.program.tasks[t];
    for (const ir::Signal& s : task.signals)
      if (sender_[t] == kNone && !is_counter(model.event(s.event).kind))
        sender_[t] = static_cast<uint32_t>(senders_++);
    for (const ir::Wait& w : task.waits)
      sent_launches_ = std::max(sent_launches_, size_t{w.lag} + 1);
  }
  sent_launches_ = std::min(sent_launches_, static_cast<size_t>(model.launches));
  sent_.resize(sent_launches_ * senders_ * followed);
}

// --- clocks ---

uint32_t Clocks::allocate() {
  if (!free_.empty()) {
    const uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  own_.resize(own_.size() + planes_ * streams_);
  others_of_.push_back(kNone);
  return static_cast<uint32_t>(others_of_.size() - 1);
}

void Clocks::release(Held& held) {
  if (--held.readers > 0) return;
  drop_others(others_of_[held.clock]);
  others_of_[held.clock] = kNone;
  free_.push_back(held.clock);
}

void Clocks::copy(uint32_t to, uint32_t from) {
  std::copy_n(own(from), planes_ * streams_, own(to));
  share_others(others_of_[to], others_of_[from]);
}

void Clocks::join(uint32_t to, uint32_t from) {
  join_words(own(to), own(from), planes_ * streams_);
  join_others(others_of_[to], others_of_[from]);
}

/// What `from`, a clock of rank `source`, says, in a clock of rank `rank`. A packet orders in the
/// weak plane only.
void Clocks::receive(uint32_t to, int rank, uint32_t from, int source, bool packet) {
  make_exclusive(others_of_[to]);
  const auto world = static_cast<size_t>(model_.world);
  // In a symmetric model both are clocks of rank 0: what it calls x is x + source here.
  const size_t turn = model_.symmetric ? static_cast<size_t>(source) : 0;
  const size_t sender = model_.symmetric ? 0 : static_cast<size_t>(source);
  for (size_t p = packet ? planes_ - 1 : 0; p < planes_; ++p)
    for (size_t x = 0; x < world; ++x) {
      const Word* said = nullptr;
      if (x == sender)
        said = own(from) + p * streams_;
      else if (others_of_[from] != kNone)
        said = others(others_of_[from]) + p * width_ + x * streams_;
      else
        continue;
      const size_t y = (x + turn) % world;
      Word* here = y == static_cast<size_t>(rank)
                       ? own(to) + p * streams_
                       : others(others_of_[to]) + p * width_ + y * streams_;
      join_words(here, said, streams_);
    }
}

// --- what they say of other ranks ---

uint32_t Clocks::allocate_others() {
  uint32_t id = static_cast<uint32_t>(others_users_.size());
  if (!others_free_.empty()) {
    id = others_free_.back();
    others_free_.pop_back();
  } else {
    others_.resize(others_.size() + planes_ * width_);
    others_users_.push_back(0);
    others_version_.push_back(0);
  }
  others_users_[id] = 1;
  return id;
}

void Clocks::drop_others(uint32_t id) {
  if (id != kNone && --others_users_[id] == 0) others_free_.push_back(id);
}

void Clocks::share_others(uint32_t& to, uint32_t from) {
  if (from != kNone) ++others_users_[from];
  drop_others(to);
  to = from;
}

/// Before its words are changed.
void Clocks::make_exclusive(uint32_t& id) {
  if (id == kNone) {
    id = allocate_others();
    std::fill_n(others(id), planes_ * width_, 0);
  } else if (others_users_[id] > 1) {
    const uint32_t fresh = allocate_others();
    std::copy_n(others(id), planes_ * width_, others(fresh));
    --others_users_[id];
    id = fresh;
  }
  others_version_[id] = ++versions_;
}

void Clocks::join_others(uint32_t& to, uint32_t from) {
  if (to == from || from == kNone) return;
  if (to == kNone) return share_others(to, from);
  const uint64_t first = others_version_[to], second = others_version_[from];
  Known& known = known_[(first * 31 + second) % known_.size()];
  if (known.first != first || known.second != second) {
    const Word *a = others(to), *b = others(from);
    Word less = 0, more = 0;  // of differences: whether one is negative
    for (size_t i = 0; i < planes_ * width_; ++i) {
      less |= a[i] - b[i];
      more |= b[i] - a[i];
    }
    known = {first, second,
             less >= 0   ? Compared::FirstHolds
             : more >= 0 ? Compared::SecondHolds
                         : Compared::Neither};
  }
  if (known.answer == Compared::FirstHolds) return;
  if (known.answer == Compared::SecondHolds) return share_others(to, from);
  make_exclusive(to);
  join_words(others(to), others(from), planes_ * width_);
}

// --- nodes ---

void Clocks::begin_launch(int launch) {
  launch_ = launch;
  if (launch == 0) return;
  // On a rank, all of a launch precedes the next.
  for (int r = 0; r < model_.followed; ++r) {
    for (uint32_t s = 1; s < streams_; ++s) join(live(r, 0), live(r, s));
    for (uint32_t s = 1; s < streams_; ++s) copy(live(r, s), live(r, 0));
  }
}

void Clocks::start(Node node) {
  if (!model_.runs(node.task, node.rank)) return;
  const size_t events = model_.program.events.size();
  const uint32_t to = live(node.rank, model_.stream_of[node.task]);
  for (const ir::Wait& w : model_.program.tasks[node.task].waits) {
    const EventKind kind = model_.event(w.event).kind;
    const int launch = launch_ - static_cast<int>(w.lag);
    if (launch < 0 || kind == EventKind::Hint) continue;  // nothing to wait for yet, or no order
    if (kind == EventKind::Local) {
      if (w.lag > 0) continue;  // the launches of a rank follow each other anyway
      Held& held = local_[static_cast<size_t>(node.rank) * events + index(w.event)];
      join(to, held.clock);
      release(held);
      continue;
    }
    const bool packet = kind == EventKind::Packet;
    for (int source = 0; source < model_.world; ++source) {
      if (!names(w.from, node.rank, source, model_.world)) continue;
      const uint32_t signaller = model_.signaller(w.event, source, node.rank);
      Held& held = sent(signaller, model_.symmetric ? 0 : source, launch);
      MACO_CHECK(held.readers > 0, "a wait before its signal in topological order");
      if (!packet || model_.surely_polls(node.task))
        receive(to, node.rank, held.clock, source, packet);
      release(held);
    }
  }
}

void Clocks::end(Node node) {
  const uint32_t stream = model_.stream_of[node.task], at = live(node.rank, stream);
  for (size_t p = 0; p < planes_; ++p)
    own(at)[p * streams_ + stream] = static_cast<Word>(number(node.task, launch_));
  for (const ir::Signal& s : model_.program.tasks[node.task].signals) {
    if (model_.event(s.event).kind != EventKind::Local) continue;
    const size_t event =
        static_cast<size_t>(node.rank) * model_.program.events.size() + index(s.event);
    if (local_readers_[event] == 0) continue;
    Held& held = local_[event];
    if (held.readers == 0) {
      held = {allocate(), local_readers_[event]};
      copy(held.clock, at);
    } else {
      join(held.clock, at);
    }
  }
  if (sender_[node.task] == kNone || !model_.runs(node.task, node.rank)) return;
  if (const uint32_t readers = peer_readers(node)) {
    const uint32_t id = allocate();
    copy(id, at);
    sent(node.task, node.rank, launch_) = {id, readers};
  }
}

/// How often `start` will ask for what `node` sends in this launch.
uint32_t Clocks::peer_readers(Node node) const {
  uint32_t readers = 0;
  for (const ir::Signal& s : model_.program.tasks[node.task].signals) {
    if (is_counter(model_.event(s.event).kind)) continue;
    const auto waiters = model_.waiters[index(s.event)];
    for (int to = 0; to < model_.world; ++to) {
      if (!names(s.to, node.rank, to, model_.world)) continue;
      for (const Model::Waiter& w : waiters)
        if (model_.runs(w.task, to) && names(w.from, to, node.rank, model_.world) &&
            launch_ + static_cast<int>(w.lag) < model_.launches)
          ++readers;
    }
  }
  return readers;
}

}  // namespace maco::verify
