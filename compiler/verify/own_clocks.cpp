#include "compiler/verify/own_clocks.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ir/check.h"

namespace maco::verify {
namespace {

bool counts(ir::EventKind kind, Heard heard) {
  return (kind == ir::EventKind::Peer && heard != Heard::Nothing) ||
         (kind == ir::EventKind::Packet && heard == Heard::Packets);
}
bool signals_peers(const Model& m, uint32_t task, Heard heard) {
  for (const ir::Signal& s : m.program.tasks[task].signals)
    if (counts(m.event(s.event).kind, heard)) return true;
  return false;
}

constexpr size_t kBlock = 64;  // words that are compared at once

uint64_t bits(int n) { return n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

}  // namespace

OwnClocks::OwnClocks(const Model& model, Heard heard)
    : model_(model),
      streams_(static_cast<uint32_t>(model.streams.size())),
      width_(streams_),
      followed_(bits(model.followed)),
      heard_(heard) {
  if (heard != Heard::Nothing) {
    column_.assign(streams_, kNone);
    sender_.assign(model.tasks(), kNone);
    for (uint32_t t = 0; t < model.tasks(); ++t) {
      if (!signals_peers(model, t, heard)) continue;
      sender_[t] = static_cast<uint32_t>(sent_.size());
      sent_.emplace_back();
      uint32_t& column = column_[model.stream_of[t]];
      if (column != kNone) continue;
      column = static_cast<uint32_t>(sender_streams_.size());
      sender_streams_.push_back(model.stream_of[t]);
    }
    width_ += peer_words(model, heard);
    said_.assign(width_, 0);
  }
  words_.assign(width_, 0);
  users_ = {1 + streams_};
  live_.assign(streams_, {{followed_, 0}});
  events_.resize(model.program.events.size());
  for (size_t e = 0; e < events_.size(); ++e) {
    if (model.program.events[e].kind != ir::EventKind::Local) continue;
    for (const Model::Waiter& w : model.waiters[e])
      if (w.lag == 0) ++events_[e].waits;
  }
}

size_t OwnClocks::peer_words(const Model& model, Heard heard) {
  std::vector<bool> sends(model.streams.size(), false);
  for (uint32_t t = 0; t < model.tasks(); ++t)
    if (signals_peers(model, t, heard)) sends[model.stream_of[t]] = true;
  return static_cast<size_t>(std::count(sends.begin(), sends.end(), true)) *
         static_cast<size_t>(model.world) * (heard == Heard::Packets ? 2 : 1);
}

uint32_t OwnClocks::allocate() {
  if (!free_.empty()) {
    const uint32_t id = free_.back();
    free_.pop_back();
    users_[id] = 1;
    return id;
  }
  words_.resize(words_.size() + width_);
  users_.push_back(1);
  return static_cast<uint32_t>(users_.size() - 1);
}

uint32_t OwnClocks::copy(uint32_t clock) {
  const uint32_t id = allocate();
  std::copy_n(words(clock), width_, words(id));
  return id;
}

void OwnClocks::join_words(uint32_t to, const int32_t* from) {
  int32_t* a = words(to);
  for (size_t i = 0; i < width_; ++i) a[i] = std::max(a[i], from[i]);
}

/// One that knows what both know; of stream `except` it may know less.
uint32_t OwnClocks::join(uint32_t a, uint32_t b, uint32_t except) {
  int32_t less = 0, more = 0;  // of differences: whether one is negative
  const int32_t *x = words(a), *y = words(b);
  const auto compare = [&](size_t first, size_t last) {
    for (size_t block = first; block < last && (less >= 0 || more >= 0); block += kBlock)
      for (size_t i = block; i < std::min(block + kBlock, last); ++i) {
        less |= x[i] - y[i];
        more |= y[i] - x[i];
      }
  };
  compare(0, except);
  compare(except + size_t{1}, width_);
  if (more >= 0) return keep(b);
  if (less >= 0) return keep(a);
  const uint32_t both = copy(a);
  join_words(both, words(b));
  return both;
}

/// `clock` is the caller's to give.
void OwnClocks::add(Parts& parts, uint64_t ranks, uint32_t clock) {
  for (Part& part : parts)
    if (part.clock == clock) {
      part.ranks |= ranks;
      drop(clock);
      return;
    }
  parts.push_back({ranks, clock});
}

void OwnClocks::drop(Parts& parts) {
  for (const Part& part : parts) drop(part.clock);
  parts.clear();
}

void OwnClocks::start(uint32_t t) {
  const ir::Task& task = model_.program.tasks[t];
  stream_ = model_.stream_of[t];
  place_ = task.place;
  for (const ir::Wait& w : task.waits)
    // The launches of a rank follow each other anyway.
    if (model_.event(w.event).kind == ir::EventKind::Local && w.lag == 0)
      wait(events_[index(w.event)], task.ranks);
  if (!sent_.empty())
    for (const ir::Wait& w : task.waits)
      if (w.lag == 0 && counts(model_.event(w.event).kind, heard_)) hear(t, w);
  views_.clear();
  for (const Part& part : live_[stream_])
    if (const uint64_t ranks = part.ranks & task.ranks)
      views_.push_back({model_.symmetric ? ~uint64_t{0} : ranks, words(part.clock)});
}

void OwnClocks::end(uint32_t t) {
  for (const ir::Signal& s : model_.program.tasks[t].signals)
    // Of those that aren't Local nobody is said to wait.
    if (events_[index(s.event)].waits > 0) signal(events_[index(s.event)]);
  if (sent_.empty() || sender_[t] == kNone) return;
  for (const Part& part : live_[stream_])
    sent_[sender_[t]].push_back({part.ranks, keep(part.clock)});
}

/// The task that was started last waits for `held` on `ranks`.
void OwnClocks::wait(Held& held, uint64_t ranks) {
  MACO_CHECK(!held.parts.empty(), "a wait before its signals in topological order");
  if (!held.sealed) seal(held);
  Parts& live = live_[stream_];
  scratch_.clear();
  for (const Part& part : live) {
    if (const uint64_t others = part.ranks & ~ranks) add(scratch_, others, keep(part.clock));
    for (const Part& told : held.parts)
      if (const uint64_t both = part.ranks & ranks & told.ranks)
        add(scratch_, both,
            part.clock == told.joined ? keep(told.clock) : join(part.clock, told.clock, stream_));
  }
  drop(live);
  std::swap(live, scratch_);
  if (--held.waits > 0) return;
  for (const Part& part : held.parts) drop(part.joined);
  drop(held.parts);
}

/// The task that was started last signals `held`, on ranks that leave it out too.
void OwnClocks::signal(Held& held) {
  if (held.parts.empty()) {
    for (const Part& part : live_[stream_]) {
      held.parts.push_back({part.ranks, copy(part.clock), keep(part.clock)});
      tell(held.parts.back(), part.clock);
    }
    return;
  }
  for (const Part& part : live_[stream_])
    for (size_t i = 0, n = held.parts.size(); i < n; ++i) {
      const uint64_t both = held.parts[i].ranks & part.ranks;
      if (both == 0) continue;
      size_t told = i;
      if (both != held.parts[i].ranks) {
        // From here on some of its ranks know something else.
        held.parts[i].ranks &= ~both;
        told = held.parts.size();
        held.parts.push_back({both, copy(held.parts[i].clock), keep(held.parts[i].joined)});
      }
      tell(held.parts[told], part.clock);
    }
}

/// It signals to the ranks of `part`, where it knows `now`.
void OwnClocks::tell(Part& part, uint32_t now) {
  if (part.joined != now) {
    join_words(part.clock, words(now));
    drop(part.joined);
    part.joined = keep(now);
  }
  int32_t& own = words(part.clock)[stream_];
  own = std::max(own, place_ + 1);
}

/// All have signalled: ranks that were told the same share it.
void OwnClocks::seal(Held& held) {
  Parts parts;
  for (const Part& part : held.parts) {
    const auto same = std::find_if(parts.begin(), parts.end(), [&](const Part& other) {
      return std::equal(words(part.clock), words(part.clock) + width_, words(other.clock));
    });
    if (same == parts.end()) {
      parts.push_back(part);
    } else {
      same->ranks |= part.ranks;
      drop(part.clock);
      drop(part.joined);
    }
  }
  held.parts = std::move(parts);
  held.sealed = true;
}

// --- peers ---

/// What `task`, which signals peers, knew on `rank`.
uint32_t OwnClocks::sent_by(uint32_t task, int rank) const {
  for (const Part& part : sent_[sender_[task]])
    if ((part.ranks >> rank) & 1) return part.clock;
  MACO_CHECK(false, "a peer is heard before it has signalled in topological order");
  return 0;
}

/// The task that was started last waits for peers.
void OwnClocks::hear(uint32_t t, const ir::Wait& wait) {
  const bool packet = model_.event(wait.event).kind == ir::EventKind::Packet;
  if (packet && !model_.surely_polls(t)) return;
  const size_t columns = sender_streams_.size();
  for (int source = 0; source < model_.world; ++source)
    for (const Model::Signaller& s : model_.signallers[index(wait.event)]) {
      if (!model_.runs(s.task, source)) continue;
      uint64_t ranks = 0;
      for (int r = 0; r < model_.followed; ++r)
        if (model_.runs(t, r) && names(wait.from, r, source, model_.world) &&
            names(s.to, source, r, model_.world))
          ranks |= uint64_t{1} << r;
      if (ranks == 0) continue;
      // In a symmetric model both clocks are of rank 0: what it calls x is x + source here.
      const int turn = model_.symmetric ? source : 0;
      const int32_t* from = words(sent_by(s.task, model_.symmetric ? 0 : source));
      std::fill(said_.begin(), said_.end(), 0);
      for (const Plane plane : {Plane::Strong, Plane::Weak}) {
        if (plane == Plane::Weak ? heard_ != Heard::Packets : packet) continue;
        for (int x = 0; x < model_.world; ++x)
          std::copy_n(from + words_of(plane, x), columns,
                      said_.data() + words_of(plane, (x + turn) % model_.world));
        int32_t& last = said_[words_of(plane, source) + column_[model_.stream_of[s.task]]];
        last = std::max(last, model_.program.tasks[s.task].place + 1);
      }
      hear(ranks, said_.data());
    }
}

void OwnClocks::hear(uint64_t ranks, const int32_t* said) {
  Parts& live = live_[stream_];
  scratch_.clear();
  for (const Part& part : live) {
    if (const uint64_t others = part.ranks & ~ranks) add(scratch_, others, keep(part.clock));
    for (uint64_t both = part.ranks & ranks; both != 0; both &= both - 1) {
      const int rank = std::countr_zero(both);
      add(scratch_, uint64_t{1} << rank, with_heard(part.clock, rank, said));
    }
  }
  drop(live);
  std::swap(live, scratch_);
}

/// What `rank` knows once it has heard `said`.
uint32_t OwnClocks::with_heard(uint32_t clock, int rank, const int32_t* said) {
  const int32_t* known = words(clock);
  int32_t less = 0;
  for (size_t i = streams_; i < width_; ++i) less |= known[i] - said[i];
  if (less >= 0) return keep(clock);
  const uint32_t more = copy(clock);
  join_words(more, said);
  look_up(more, rank, said);
  return more;
}

/// Of the rank's own tasks that it has heard of: they have ended, and with them what they knew of.
void OwnClocks::look_up(uint32_t clock, int rank, const int32_t* said) {
  const int32_t* own = said + words_of(Plane::Strong, rank);
  for (size_t c = 0; c < sender_streams_.size(); ++c) {
    const uint32_t stream = sender_streams_[c];
    const int32_t known = stream == stream_ ? place_ : words(clock)[stream];
    if (own[c] <= known) continue;
    const uint32_t task = model_.streams[stream][static_cast<size_t>(own[c]) - 1];
    join_words(clock, words(sent_by(task, rank)));
    words(clock)[stream] = std::max(words(clock)[stream], own[c]);
  }
}

bool OwnClocks::heard_of(Plane plane, int rank, uint32_t task, int of) const {
  if (sent_.empty() || (plane == Plane::Weak && heard_ != Heard::Packets)) return false;
  const int here = model_.symmetric ? 0 : rank;
  const int there = model_.symmetric ? (of - rank + model_.world) % model_.world : of;
  const uint32_t stream = model_.stream_of[task];
  const int32_t place = model_.program.tasks[task].place;
  for (const Part& part : live_[stream_]) {
    if (!((part.ranks >> here) & 1)) continue;
    const int32_t* heard = words(part.clock) + words_of(plane, there);
    for (size_t c = 0; c < sender_streams_.size(); ++c) {
      if (heard[c] == 0) continue;
      const uint32_t by = model_.streams[sender_streams_[c]][static_cast<size_t>(heard[c]) - 1];
      if (sender_streams_[c] == stream
              ? place < heard[c]
              : place < words(sent_by(by, model_.symmetric ? 0 : of))[stream])
        return true;
    }
  }
  return false;
}

}  // namespace maco::verify
