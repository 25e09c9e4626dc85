#include "compiler/verify/private_past.h"

#include <algorithm>

#include "ir/ranks.h"

namespace maco::verify {

// --- intervals ---

Intervals::Intervals(std::vector<int64_t> begins) : begins_(std::move(begins)) {
  while (leaves_ < begins_.size()) leaves_ *= 2;
  ends_.assign(2 * leaves_, INT64_MIN);
}

void Intervals::set(size_t i, int64_t end) {
  size_t node = leaves_ + i;
  ends_[node] = end;
  while (node > 1) {
    node /= 2;
    const int64_t last = std::max(ends_[2 * node], ends_[2 * node + 1]);
    if (ends_[node] == last) return;
    ends_[node] = last;
  }
}

void Intervals::find(int64_t begin, int64_t end, std::vector<uint32_t>& found) const {
  find(1, 0, leaves_, begin, end, found);
}

void Intervals::find(size_t node, size_t first, size_t count, int64_t begin, int64_t end,
                     std::vector<uint32_t>& found) const {
  if (ends_[node] <= begin || begins_[first] >= end) return;
  if (count == 1) {
    found.push_back(static_cast<uint32_t>(first));
    return;
  }
  find(2 * node, first, count / 2, begin, end, found);
  find(2 * node + 1, first + count / 2, count / 2, begin, end, found);
}

// --- groups ---

PrivatePast::PrivatePast(const Model& model, const Layout& layout)
    : model_(model), spaces_(layout.spaces()) {
  const ir::Program& p = model.program;
  world_ = ir::all_ranks(model.world);
  // By call, access and whether it writes.
  std::vector<uint32_t> most(p.calls.size(), 0), first_kind(p.calls.size(), 0);
  for (const ir::Task& t : p.tasks)
    most[index(t.call)] = std::max(most[index(t.call)], static_cast<uint32_t>(t.accesses.size()));
  uint32_t kinds = 0;
  for (size_t c = 0; c < most.size(); ++c) {
    first_kind[c] = kinds;
    kinds += 2 * most[c];
  }
  std::vector<uint32_t> kind;  // by touch
  for (uint32_t t = 0; t < p.tasks.size(); ++t) {
    const ir::Task& task = p.tasks[t];
    first_touch_.push_back(static_cast<uint32_t>(touches_.size()));
    for (uint32_t i = 0; i < task.accesses.size(); ++i) {
      const ir::Access& a = task.accesses[i];
      if (p[a.region.buffer].kind == ir::BufferKind::Slot || p[a.region.buffer].own_packets() ||
          !layout.matters(a.region.buffer))
        continue;
      const auto touch = [&](const Box& box, uint64_t ranks) {
        if (box.empty() || ranks == 0) return;
        touches_.push_back({box, ranks, t, 0});
        kind.push_back(first_kind[index(task.call)] + 2 * i + (a.writes() ? 1 : 0));
      };
      if (!a.region.block.moves()) {
        touch(layout.box(a.region, 0, 0), task.ranks & world_);
        continue;
      }
      for (int r = 0; r < model.world; ++r)
        if (model.runs(t, r)) touch(layout.box(a.region, r, 0), uint64_t{1} << r);
    }
  }
  first_touch_.push_back(static_cast<uint32_t>(touches_.size()));
  there_.assign(touches_.size(), 0);
  make_groups(kind, kinds);
}

void PrivatePast::make_groups(const std::vector<uint32_t>& kind, uint32_t kinds) {
  std::vector<uint32_t> first(kinds + size_t{1}, 0);
  for (const uint32_t k : kind) ++first[k + 1];
  for (size_t k = 0; k < kinds; ++k) first[k + 1] += first[k];
  members_.items.resize(touches_.size());
  std::vector<uint32_t> at(first.begin(), first.end() - 1);
  for (uint32_t i = 0; i < touches_.size(); ++i) members_.items[at[kind[i]]++] = i;
  const auto before = [&](uint32_t x, uint32_t y) {
    const Box &a = touches_[x].box, &b = touches_[y].box;
    if (a.space != b.space) return a.space < b.space;
    const int64_t a_start = a.space != 0 ? a.start_in_space : a.start,
                  b_start = b.space != 0 ? b.start_in_space : b.start;
    return a_start != b_start ? a_start < b_start : x < y;
  };
  for (uint32_t k = 0; k < kinds; ++k) {
    const auto begin = members_.items.begin() + first[k],
               end = members_.items.begin() + first[k + 1];
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
    for (uint32_t i = first[k]; i < first[k + 1]; ++i) {
      Touch& x = touches_[members_.items[i]];
      if (i == first[k] || i - members_.begin.back() == kMost ||
          x.box.space != groups_.back().space) {
        members_.begin.push_back(i);
        groups_.emplace_back();
        groups_.back().space = x.box.space;
        groups_.back().writes = k % 2 == 1;
      }
      Group& g = groups_.back();
      x.group = static_cast<uint32_t>(groups_.size() - 1);
      g.begin = std::min(g.begin, x.box.start);
      g.end = std::max(g.end, x.box.end());
      if (g.space == 0) continue;
      const Box in_space = x.box.in_space();
      g.begin_in_space = std::min(g.begin_in_space, in_space.start);
      g.end_in_space = std::max(g.end_in_space, in_space.end());
    }
  }
  members_.begin.push_back(static_cast<uint32_t>(touches_.size()));
  is_live_.assign(groups_.size(), false);

  for (const bool writes : {false, true}) make_intervals(writes);
}

void PrivatePast::make_intervals(bool writes) {
  const auto make = [&](Live& live, bool with_space, int64_t Group::* begin,
                        uint32_t Group::* interval) {
    for (uint32_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].writes == writes && (groups_[g].space != 0) == with_space)
        live.groups.push_back(g);
    std::sort(live.groups.begin(), live.groups.end(), [&](uint32_t x, uint32_t y) {
      const int64_t a = groups_[x].*begin, b = groups_[y].*begin;
      return a != b ? a < b : x < y;
    });
    std::vector<int64_t> begins;
    for (uint32_t i = 0; i < live.groups.size(); ++i) {
      groups_[live.groups[i]].*interval = i;
      begins.push_back(groups_[live.groups[i]].*begin);
    }
    live.intervals = std::make_unique<Intervals>(std::move(begins));
  };
  make(plain_[writes], false, &Group::begin, &Group::interval);
  make(of_spaces_[writes], true, &Group::begin, &Group::interval);
  make(in_spaces_[writes], true, &Group::begin_in_space, &Group::interval_in_space);
}

void PrivatePast::set_there(const Group& g, bool there) {
  (g.space == 0 ? plain_ : of_spaces_)[g.writes].intervals->set(g.interval,
                                                                there ? g.end : INT64_MIN);
  if (g.space != 0)
    in_spaces_[g.writes].intervals->set(g.interval_in_space, there ? g.end_in_space : INT64_MIN);
}

/// The groups that `box` may meet, in `found_groups_`.
void PrivatePast::find(const Box& box, bool writes) {
  found_groups_.clear();
  const auto look = [&](const Live& live, int64_t begin, int64_t end, int32_t except) {
    found_.clear();
    live.intervals->find(begin, end, found_);
    for (const uint32_t i : found_)
      if (groups_[live.groups[i]].space != except) found_groups_.push_back(live.groups[i]);
  };
  look(plain_[writes], box.start, box.end(), -1);
  if (box.space == 0 || spaces_ > 1) look(of_spaces_[writes], box.start, box.end(), box.space);
  if (box.space == 0) return;
  const Box in_space = box.in_space();
  look(in_spaces_[writes], in_space.start, in_space.end(), -1);
}

bool PrivatePast::visit(uint32_t task, const OwnClocks& clocks, int64_t& pairs) {
  clocks_ = &clocks;
  const uint32_t first = first_touch_[task], last = first_touch_[task + 1];
  for (uint32_t i = first; i < last; ++i) {
    const Touch& now = touches_[i];
    const bool writes = groups_[now.group].writes;
    for (const bool theirs : {true, false}) {
      if (!writes && !theirs) continue;
      find(now.box, theirs);
      for (const uint32_t group : found_groups_)
        if (!comes_after(groups_[group], now, pairs)) return false;
    }
  }
  for (uint32_t i = first; i < last; ++i) add(i);
  return true;
}

void PrivatePast::add(uint32_t touch) {
  const Touch& x = touches_[touch];
  Group& g = groups_[x.group];
  there_[touch] = x.ranks;
  if (g.there.empty()) set_there(g, true);
  g.there.push_back(touch);
  ++g.alive;
  g.last_task = std::max(g.last_task, x.task);
  if (!is_live_[x.group]) live_.push_back(x.group);
  is_live_[x.group] = true;

  const uint32_t stream = clocks_->stream();
  const int32_t count = clocks_->place() + 1;
  if (!g.all.empty()) {
    g.all[stream] = std::max(g.all[stream], count);
    return;
  }
  for (auto& [s, most] : g.few)
    if (s == stream) {
      most = std::max(most, count);
      return;
    }
  g.few.push_back({stream, count});
  if (g.few.size() <= kFew) return;
  g.all.assign(clocks_->streams(), 0);
  for (const auto& [s, most] : g.few) g.all[s] = most;
  g.few.clear();
}

void PrivatePast::clear(Group& g) {
  for (const uint32_t touch : g.there) {
    there_[touch] = 0;
    if (!rests_.empty()) rests_.erase(touch);
  }
  g.there.clear();
  g.alive = 0;
  g.last_task = 0;
  g.few.clear();
  g.all.clear();
  set_there(g, false);
}

void PrivatePast::forget(const int32_t* ended, uint32_t listed) {
  std::erase_if(live_, [&](uint32_t id) {
    Group& g = groups_[id];
    if (!g.there.empty()) {
      if (g.last_task >= listed) return false;
      for (const auto& [stream, count] : g.few)
        if (count > ended[stream]) return false;
      for (size_t s = 0; s < g.all.size(); ++s)
        if (g.all[s] > ended[s]) return false;
      clear(g);
    }
    is_live_[id] = false;
    return true;
  });
}

/// Whether `now`, of the task that was started last, comes after all of the group that it meets.
bool PrivatePast::comes_after(Group& g, const Touch& now, int64_t& pairs) {
  ++pairs;
  if (g.last_task >= now.task || !all_ended(g)) return comes_after_each(g, now, pairs);
  // Whoever comes after it comes after all of them.
  if (groups_[now.group].writes && now.ranks == world_ && now.box.space == 0 && now.box.rows == 1 &&
      now.box.start <= g.begin && g.end <= now.box.end())
    clear(g);
  return true;
}

bool PrivatePast::all_ended(const Group& g) const {
  for (const OwnClocks::View& view : clocks_->views()) {
    for (const auto& [stream, count] : g.few)
      if (!clocks_->ended(view, stream, count - 1)) return false;
    if (g.all.empty()) continue;
    const int32_t *needed = g.all.data(), *ended = view.ended;
    const auto some = [&](size_t first, size_t last) {
      int32_t less = 0;
      for (size_t s = first; s < last; ++s) less |= ended[s] - needed[s];
      return less < 0;
    };
    const size_t own = clocks_->stream();
    if (needed[own] > clocks_->place() || some(0, own) || some(own + 1, g.all.size())) return false;
  }
  return true;
}

bool PrivatePast::comes_after_each(Group& g, const Touch& now, int64_t& pairs) {
  if (g.there.size() <= kFew) {
    for (const uint32_t past : g.there)
      if (!comes_after_touch(g, past, now, pairs)) return false;
  } else {
    const Index& boxes = indexed(touches_[g.there[0]].group);
    runs_.clear();
    boxes.table.find(now.box, runs_, false);
    for (const BoxTable::Run run : runs_)
      for (uint32_t box = run.first; box < run.last; ++box)
        for (const uint32_t past : boxes.touches[box])
          if (!comes_after_touch(g, past, now, pairs)) return false;
  }
  if (g.alive == 0) clear(g);
  return true;
}

bool PrivatePast::comes_after_touch(Group& g, uint32_t past, const Touch& now, int64_t& pairs) {
  const uint64_t both = there_[past] & now.ranks;
  if (both == 0) return true;
  ++pairs;
  const Touch& before = touches_[past];
  const uint32_t stream = model_.stream_of[before.task];
  const int32_t place = model_.program.tasks[before.task].place;
  bool ended = before.task < now.task;
  for (const OwnClocks::View& view : clocks_->views())
    ended = ended && ((view.ranks & both) == 0 || clocks_->ended(view, stream, place));
  if (!ended) return !overlap(before.box, now.box);
  if (!groups_[now.group].writes) return true;
  // Whoever comes after what overwrites it comes after it.
  if (covers(now.box, before.box))
    there_[past] &= ~now.ranks;
  else if (both == there_[past] && takes_rest(past, now.box))
    there_[past] = 0;
  if (there_[past] == 0) {
    if (!rests_.empty()) rests_.erase(past);
    --g.alive;
  }
  return true;
}

/// Whether `box` and those before it hold all of what `past` touched.
bool PrivatePast::takes_rest(uint32_t past, const Box& box) {
  const auto at = rests_.find(past);
  if (at != rests_.end()) return at->second.take(touches_[past].box, box);
  Rest rest;
  if (rest.take(touches_[past].box, box)) return true;
  if (rest.begun()) rests_.emplace(past, rest);
  return false;
}

PrivatePast::Index& PrivatePast::indexed(size_t group) {
  Group& g = groups_[group];
  if (g.index) return *g.index;
  const auto members = members_[group];
  std::vector<Box> boxes;
  for (const uint32_t touch : members) boxes.push_back(touches_[touch].box);
  g.index = std::make_unique<Index>(boxes);
  Lists<uint32_t>& by_box = g.index->touches;
  const std::vector<uint32_t>& ids = g.index->ids;
  by_box.begin.assign(g.index->table.size() + 1, 0);
  for (const uint32_t id : ids) ++by_box.begin[id + 1];
  for (size_t i = 0; i + 1 < by_box.begin.size(); ++i) by_box.begin[i + 1] += by_box.begin[i];
  by_box.items.resize(ids.size());
  std::vector<uint32_t> at(by_box.begin.begin(), by_box.begin.end() - 1);
  for (size_t i = 0; i < ids.size(); ++i) by_box.items[at[ids[i]]++] = members.begin()[i];
  return *g.index;
}

}  // namespace maco::verify
