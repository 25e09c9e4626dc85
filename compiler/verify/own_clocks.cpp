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

uint64_t bits(int n) { return n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

}  // namespace

OwnClocks::OwnClocks(const Model& model, Heard heard)
    : model_(model),
      streams_(static_cast<uint32_t>(model.streams.size())),
      followed_(bits(model.followed)),
      heard_(heard) {
  words_.assign(streams_, 0);
  lists_ = {0};
  users_ = {1 + streams_};
  live_.assign(streams_, {{followed_, 0}});
  events_.resize(model.program.events.size());
  for (size_t e = 0; e < events_.size(); ++e) {
    if (model.program.events[e].kind != ir::EventKind::Local) continue;
    for (const Model::Waiter& w : model.waiters[e])
      if (w.lag == 0) ++events_[e].waits;
  }
  if (heard == Heard::Nothing) return;
  std::vector<bool> sends(model.tasks());
  for (uint32_t t = 0; t < model.tasks(); ++t) sends[t] = signals_peers(model, t, heard);
  number_senders(sends);
  if (heard == Heard::Echoes) {
    for (const ir::Task& t : model.program.tasks)
      waits_for_peers_.push_back(
          std::any_of(t.waits.begin(), t.waits.end(), [&](const ir::Wait& w) {
            return w.lag == 0 && model.event(w.event).kind == ir::EventKind::Peer;
          }));
    return;
  }
  list_.resize(static_cast<size_t>(model.world) * (heard == Heard::Packets ? 2 : 1));
  heard_places_ = std::make_unique<HeardPlaces>(list_.size(), sender_streams_.size());
}

OwnClocks::OwnClocks(const Model& model, const std::vector<HeardOfItself>& heard)
    : OwnClocks(model, Heard::Nothing) {
  again_ = &heard;
  std::vector<bool> sends(model.tasks(), false);
  for (const HeardOfItself& h : heard) sends[h.sender] = true;
  number_senders(sends);
}

void OwnClocks::number_senders(const std::vector<bool>& sends) {
  column_.assign(streams_, kNone);
  sender_.assign(model_.tasks(), kNone);
  for (uint32_t t = 0; t < model_.tasks(); ++t) {
    if (!sends[t]) continue;
    sender_[t] = static_cast<uint32_t>(sent_.size());
    sent_.emplace_back();
    uint32_t& column = column_[model_.stream_of[t]];
    if (column != kNone) continue;
    column = static_cast<uint32_t>(sender_streams_.size());
    sender_streams_.push_back(model_.stream_of[t]);
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
  words_.resize(words_.size() + streams_);
  lists_.push_back(0);
  users_.push_back(1);
  return static_cast<uint32_t>(users_.size() - 1);
}

uint32_t OwnClocks::copy(uint32_t clock) {
  const uint32_t id = allocate();
  std::copy_n(words(clock), streams_, words(id));
  lists_[id] = lists_[clock];
  return id;
}

void OwnClocks::join_words(uint32_t to, uint32_t from) {
  int32_t* a = words(to);
  const int32_t* b = words(from);
  for (size_t i = 0; i < streams_; ++i) a[i] = std::max(a[i], b[i]);
  ++joins_;
}

void OwnClocks::join_into(uint32_t to, uint32_t from) {
  join_words(to, from);
  if (heard_places_) lists_[to] = heard_places_->joined(lists_[to], lists_[from]);
}

bool OwnClocks::equal(uint32_t a, uint32_t b) const {
  return lists_[a] == lists_[b] && std::equal(words(a), words(a) + streams_, words(b));
}

/// One that knows what all of `clocks_` know; of the stream of the task that was started last it
/// may know less.
uint32_t OwnClocks::joined_clock() {
  std::sort(clocks_.begin(), clocks_.end());
  clocks_.erase(std::unique(clocks_.begin(), clocks_.end()), clocks_.end());
  if (clocks_.size() == 1) return keep(clocks_[0]);
  uint32_t list = 0;
  if (heard_places_) {
    lists_of_clocks_.clear();
    for (const uint32_t clock : clocks_) lists_of_clocks_.push_back(lists_[clock]);
    list = heard_places_->joined(lists_of_clocks_);
  }
  joined_words_.assign(words(clocks_[0]), words(clocks_[0]) + streams_);
  for (size_t k = 1; k < clocks_.size(); ++k) {
    const int32_t* other = words(clocks_[k]);
    for (size_t i = 0; i < streams_; ++i) joined_words_[i] = std::max(joined_words_[i], other[i]);
  }
  joins_ += static_cast<int64_t>(clocks_.size()) - 1;
  const auto own = static_cast<std::ptrdiff_t>(stream_);
  for (const uint32_t clock : clocks_) {
    const int32_t* known = words(clock);
    if (lists_[clock] == list &&
        std::equal(joined_words_.begin(), joined_words_.begin() + own, known) &&
        std::equal(joined_words_.begin() + own + 1, joined_words_.end(), known + own + 1))
      return keep(clock);
  }
  const uint32_t all = allocate();
  std::copy(joined_words_.begin(), joined_words_.end(), words(all));
  lists_[all] = list;
  return all;
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

/// Compares what clocks say, too.
void OwnClocks::add_equal(Parts& parts, uint64_t ranks, uint32_t clock) {
  for (Part& part : parts)
    if (equal(part.clock, clock)) {
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
  if (heard_places_ && heard_places_->many()) forget_unheard();
  const ir::Task& task = model_.program.tasks[t];
  stream_ = model_.stream_of[t];
  place_ = task.place;
  wait(t);
  if (heard_places_) hear(t);
  if (again_) hear_again(t);
  if (heard_ == Heard::Echoes && waits_for_peers_[t]) hear_echoes(t);
  views_.clear();
  for (const Part& part : live_[stream_])
    if (const uint64_t ranks = part.ranks & task.ranks)
      views_.push_back({model_.symmetric ? ~uint64_t{0} : ranks, words(part.clock)});
}

void OwnClocks::end(uint32_t t) {
  for (const ir::Signal& s : model_.program.tasks[t].signals)
    // Only Local events have waits here.
    if (events_[index(s.event)].waits > 0) signal(events_[index(s.event)]);
  if (sent_.empty() || sender_[t] == kNone) return;
  for (const Part& part : live_[stream_])
    sent_[sender_[t]].push_back({part.ranks, keep(part.clock)});
}

/// The task that was started last waits for Local events.
void OwnClocks::wait(uint32_t t) {
  const ir::Task& task = model_.program.tasks[t];
  awaited_.clear();
  for (const ir::Wait& w : task.waits) {
    // The launches of a rank follow each other anyway.
    if (model_.event(w.event).kind != ir::EventKind::Local || w.lag > 0) continue;
    Held& held = events_[index(w.event)];
    MACO_CHECK(!held.parts.empty(), "a wait before its signals in topological order");
    if (!held.sealed) seal(held);
    awaited_.push_back(&held);
  }
  if (awaited_.empty()) return;
  Parts& live = live_[stream_];
  scratch_.clear();
  for (const Part& part : live) {
    if (const uint64_t others = part.ranks & ~task.ranks) add(scratch_, others, keep(part.clock));
    for (uint64_t rest = part.ranks & task.ranks; rest != 0;) {
      // The ranks to which all of the awaited events tell the same.
      uint64_t ranks = rest;
      bool included = false;
      clocks_.clear();
      for (const Held* held : awaited_)
        for (const Told& told : held->parts) {
          if (((told.ranks >> std::countr_zero(rest)) & 1) == 0) continue;
          ranks &= told.ranks;
          clocks_.push_back(told.clock);
          included = included || told.joined == part.clock;
        }
      if (!included) clocks_.push_back(part.clock);
      rest &= ~ranks;
      add(scratch_, ranks, joined_clock());
    }
  }
  drop(live);
  std::swap(live, scratch_);
  for (Held* held : awaited_) {
    if (--held->waits > 0) continue;
    for (const Told& part : held->parts) {
      drop(part.joined);
      drop(part.clock);
    }
    held->parts = {};
  }
}

/// The task that was started last signals `held`, on ranks that leave it out too.
void OwnClocks::signal(Held& held) {
  if (held.parts.empty()) {
    for (const Part& part : live_[stream_]) {
      held.parts.push_back(
          {{part.ranks, copy(part.clock)}, keep(part.clock), {lists_[part.clock]}});
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
        held.parts.push_back(
            {{both, copy(held.parts[i].clock)}, keep(held.parts[i].joined), held.parts[i].lists});
      }
      tell(held.parts[told], part.clock);
    }
}

/// It signals to the ranks of `part`, where it knows `now`.
void OwnClocks::tell(Told& part, uint32_t now) {
  if (part.joined != now) {
    join_words(part.clock, now);
    if (lists_[now] != part.lists.back()) part.lists.push_back(lists_[now]);
    drop(part.joined);
    part.joined = keep(now);
  }
  int32_t& own = words(part.clock)[stream_];
  own = std::max(own, place_ + 1);
}

/// Called when all have signalled. Ranks that were told the same then share one clock.
void OwnClocks::seal(Held& held) {
  std::vector<Told> parts;
  for (Told& part : held.parts) {
    if (heard_places_) lists_[part.clock] = heard_places_->joined(part.lists);
    part.lists = {};
    const auto same = std::find_if(parts.begin(), parts.end(), [&](const Told& other) {
      return equal(part.clock, other.clock);
    });
    if (same == parts.end()) {
      parts.push_back(std::move(part));
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
void OwnClocks::hear(uint32_t t) {
  sayings_.clear();
  said_.clear();
  for (const ir::Wait& w : model_.program.tasks[t].waits)
    if (w.lag == 0 && counts(model_.event(w.event).kind, heard_)) gather(t, w);
  if (sayings_.empty()) return;
  uint64_t ranks = 0;
  for (const Saying& saying : sayings_) ranks |= saying.ranks;
  Parts& live = live_[stream_];
  scratch_.clear();
  for (const Part& part : live) {
    if (const uint64_t others = part.ranks & ~ranks) add(scratch_, others, keep(part.clock));
    for (uint64_t both = part.ranks & ranks; both != 0; both &= both - 1) {
      const int rank = std::countr_zero(both);
      add_equal(scratch_, uint64_t{1} << rank, with_heard(part.clock, rank));
    }
  }
  drop(live);
  std::swap(live, scratch_);
}

void OwnClocks::gather(uint32_t t, const ir::Wait& wait) {
  const bool packet = model_.event(wait.event).kind == ir::EventKind::Packet;
  if (packet && !model_.surely_polls(t)) return;
  for (int source = 0; source < model_.world; ++source)
    for (const Model::Signaller& s : model_.signallers[index(wait.event)]) {
      if (!model_.runs(s.task, source)) continue;
      uint64_t ranks = 0;
      for (int r = 0; r < model_.followed; ++r)
        if (model_.runs(t, r) && names(wait.from, r, source, model_.world) &&
            names(s.to, source, r, model_.world))
          ranks |= uint64_t{1} << r;
      if (ranks == 0) continue;
      sayings_.push_back({ranks, said_.size()});
      said_.resize(said_.size() + list_.size(), 0);
      uint32_t* const said = said_.data() + sayings_.back().first;
      // In a symmetric model both clocks are of rank 0: what it calls x is x + source here.
      const int turn = model_.symmetric ? source : 0;
      const uint32_t list = lists_[sent_by(s.task, model_.symmetric ? 0 : source)];
      for (const Plane plane : {Plane::Strong, Plane::Weak}) {
        if (plane == Plane::Weak ? heard_ != Heard::Packets : packet) continue;
        const uint32_t* from = heard_places_->rows(list);
        for (int x = 0; x < model_.world; ++x)
          said[row_of(plane, (x + turn) % model_.world)] = from[row_of(plane, x)];
        uint32_t& row = said[row_of(plane, source)];
        row = heard_places_->raised(row, column_[model_.stream_of[s.task]],
                                    model_.program.tasks[s.task].place + 1);
      }
    }
}

/// What `rank` knows once it has heard what was gathered.
uint32_t OwnClocks::with_heard(uint32_t clock, int rank) {
  bool more = false;
  const size_t own = row_of(Plane::Strong, rank);
  uint32_t own_before = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    const uint32_t known = heard_places_->rows(lists_[clock])[i];
    rows_.assign(1, known);
    for (const Saying& saying : sayings_)
      if (const uint32_t said = said_[saying.first + i];
          ((saying.ranks >> rank) & 1) && said != rows_.back())
        rows_.push_back(said);
    list_[i] = heard_places_->joined_rows(rows_);
    more = more || list_[i] != known;
    if (i == own) own_before = known;
  }
  if (!more) return keep(clock);
  const uint32_t now = copy(clock), own_now = list_[own];
  lists_[now] = heard_places_->list(list_);
  // What it had heard of itself has been looked up.
  if (own_now != own_before) look_up(now, rank, own_now);
  return now;
}

/// Adds the rank's own tasks that `row` says it has heard of: they have ended, and so has what they
/// knew of.
void OwnClocks::look_up(uint32_t clock, int rank, uint32_t row) {
  for (size_t c = 0; c < sender_streams_.size(); ++c) {
    const uint32_t stream = sender_streams_[c];
    const int32_t known = stream == stream_ ? place_ : words(clock)[stream];
    const int32_t ended = heard_places_->places(row)[c];
    if (ended <= known) continue;
    const uint32_t sender = model_.streams[stream][static_cast<size_t>(ended) - 1];
    look_up(clock, rank, sender, ended);
    heard_of_themselves_.push_back(
        {model_.streams[stream_][static_cast<size_t>(place_)], sender, rank});
  }
}

void OwnClocks::look_up(uint32_t clock, int rank, uint32_t sender, int32_t ended) {
  join_into(clock, sent_by(sender, rank));
  int32_t& own = words(clock)[model_.stream_of[sender]];
  own = std::max(own, ended);
}

/// The task that was started last waits for tasks of peers that have waited for its own rank.
void OwnClocks::hear_echoes(uint32_t t) {
  Parts& live = live_[stream_];
  for (int rank = 0; rank < model_.followed; ++rank) {
    if (!model_.runs(t, rank)) continue;
    find_echoes(t, rank);
    uint32_t now = 0;  // a copy, if it hears what it doesn't know
    for (const uint32_t sender : echoes_) {
      const uint64_t bit = uint64_t{1} << rank;
      const auto at = std::find_if(live.begin(), live.end(),
                                   [&](const Part& part) { return (part.ranks & bit) != 0; });
      const uint32_t clock = now != 0 ? now : at->clock, stream = model_.stream_of[sender];
      const int32_t ended = model_.program.tasks[sender].place + 1;
      if (ended <= (stream == stream_ ? place_ : words(clock)[stream])) continue;
      if (now == 0) now = taken_out(live, rank);
      look_up(now, rank, sender, ended);
      heard_of_themselves_.push_back({t, sender, rank});
    }
    if (now != 0) add_equal(live, uint64_t{1} << rank, now);
  }
}

/// In `echoes_`: whom on `rank` it waits for, and those have waited for that it waits for.
void OwnClocks::find_echoes(uint32_t t, int rank) {
  echoes_.clear();
  const auto each_sender = [&](uint32_t task, const auto& visit) {
    for (const ir::Wait& w : model_.program.tasks[task].waits) {
      if (w.lag > 0 || model_.event(w.event).kind != ir::EventKind::Peer) continue;
      for (const Model::Signaller& s : model_.signallers[index(w.event)]) visit(w.from, s);
    }
  };
  each_sender(t, [&](ir::RankRef from, const Model::Signaller& s) {
    if (model_.runs(s.task, rank) && names(from, rank, rank, model_.world) &&
        names(s.to, rank, rank, model_.world))
      echoes_.push_back(s.task);
    if (!waits_for_peers_[s.task]) return;
    for (int peer = 0; peer < model_.world; ++peer) {
      if (!model_.runs(s.task, peer) || !names(from, rank, peer, model_.world) ||
          !names(s.to, peer, rank, model_.world))
        continue;
      each_sender(s.task, [&](ir::RankRef of, const Model::Signaller& own) {
        if (model_.runs(own.task, rank) && names(of, peer, rank, model_.world) &&
            names(own.to, rank, peer, model_.world))
          echoes_.push_back(own.task);
      });
    }
  });
}

/// A copy of what `rank` knows, which is of none of `parts` any more.
uint32_t OwnClocks::taken_out(Parts& parts, int rank) {
  const uint64_t bit = uint64_t{1} << rank;
  const auto at = std::find_if(parts.begin(), parts.end(),
                               [&](const Part& part) { return (part.ranks & bit) != 0; });
  MACO_CHECK(at != parts.end(), "a rank that isn't followed has heard of itself");
  const uint32_t now = copy(at->clock);
  at->ranks &= ~bit;
  if (at->ranks == 0) {
    drop(at->clock);
    parts.erase(at);
  }
  return now;
}

/// What it was said to have heard.
void OwnClocks::hear_again(uint32_t t) {
  Parts& live = live_[stream_];
  while (next_again_ < again_->size() && (*again_)[next_again_].task == t) {
    const int rank = (*again_)[next_again_].rank;
    const uint32_t now = taken_out(live, rank);
    for (; next_again_ < again_->size(); ++next_again_) {
      const HeardOfItself& heard = (*again_)[next_again_];
      if (heard.task != t || heard.rank != rank) break;
      look_up(now, rank, heard.sender, model_.program.tasks[heard.sender].place + 1);
    }
    add_equal(live, uint64_t{1} << rank, now);
  }
}

/// Forgets what is heard of peers and no clock has any more.
void OwnClocks::forget_unheard() {
  std::vector<bool> used(heard_places_->lists(), false);
  for (size_t clock = 0; clock < users_.size(); ++clock)
    if (users_[clock] > 0) used[lists_[clock]] = true;
  for (const Held& held : events_)
    for (const Told& part : held.parts)
      for (const uint32_t list : part.lists) used[list] = true;
  heard_places_->keep_only(used);
}

bool OwnClocks::heard_of(Plane plane, int rank, uint32_t task, int of) const {
  if (!heard_places_ || (plane == Plane::Weak && heard_ != Heard::Packets)) return false;
  const int here = model_.symmetric ? 0 : rank;
  const int there = model_.symmetric ? (of - rank + model_.world) % model_.world : of;
  const uint32_t stream = model_.stream_of[task];
  const int32_t place = model_.program.tasks[task].place;
  for (const Part& part : live_[stream_]) {
    if (!((part.ranks >> here) & 1)) continue;
    const int32_t* heard =
        heard_places_->places(heard_places_->rows(lists_[part.clock])[row_of(plane, there)]);
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
