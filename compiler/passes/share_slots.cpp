// share_slots.cpp: slots that a launch uses one after the other share one place of symmetric
// memory.
//
// A slot may follow another in its place under these conditions. Each task that writes it comes, on
// its own rank, after the tasks that wrote the same bytes of the other slot, and after the tasks
// that read them, on the rank where the slot lies. Both orders follow from existing waits
// (known.h), so that nothing waits longer. Writers are compared one by one. So only slots that the
// same tasks fill in the same way share a place, and in the list of tasks all that touch the first
// slot come before all that touch the second. Packets of two slots in one place have different
// flags (Buffer::use).
//
// The last slot of a place in one launch, and the first in the next launch that uses the same copy,
// are ordered by the launch in between, in which every rank hears of every other. If launches don't
// guarantee this, each slot keeps a place of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "compiler/passes/known.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/symmetric.h"

namespace maco::passes {

namespace {

using ir::BufferId;
using ir::TaskId;

// How many places a slot considers: those that have been in use for longest.
constexpr size_t kMostCandidates = 8;

// One write of a slot, without which slot it is.
using Pattern = std::array<int64_t, 12>;
Pattern pattern_of(const ir::Task& task, const ir::Region& r) {
  return {r.r0,
          r.c0,
          r.r1,
          r.c1,
          r.pitch,
          static_cast<int64_t>(r.where.kind),
          r.where.n,
          static_cast<int64_t>(r.block.ref.kind),
          r.block.ref.n,
          r.block.rows,
          r.block.value ? int64_t{*r.block.value} : -1,
          static_cast<int64_t>(task.ranks)};
}

struct Write {
  Pattern pattern;
  TaskId task{};
  ir::RankRef where;
  int64_t c0 = 0, c1 = 0;
};
struct Read {
  int64_t c0 = 0, c1 = 0;
  TaskId task{};
};

struct Slot {
  std::vector<Write> writes;  // by pattern
  std::vector<Read> reads;    // by c0
  TaskId first{}, last{};     // tasks that touch it
  int64_t widest_read = 0;
  size_t shape = 0;                // slots of one shape are written the same way
  size_t left = 0;                 // how many writes are still to come
  std::vector<size_t> candidates;  // places that it may still get
};

class Sharing {
 public:
  explicit Sharing(ir::Program& p) : p_(p), slots_(p.buffers.size()) { collect(); }

  /// The places, each with its slots in the order of their use.
  std::vector<std::vector<BufferId>> places() {
    if (may_save_half()) walk();
    if (places_.empty())
      for (size_t b : used_) places_.push_back({ir::id_of<BufferId>(b)});
    return places_;
  }
  int64_t joins() const { return joins_; }

 private:
  void collect() {
    for (size_t t = 0; t < p_.tasks.size(); ++t)
      for (const ir::Access& a : p_.tasks[t].accesses) {
        const ir::Region& r = a.region;
        const ir::Buffer& b = p_[r.buffer];
        if (b.kind != ir::BufferKind::Slot || b.wire) continue;
        Slot& slot = slots_[index(r.buffer)];
        const auto task = ir::id_of<TaskId>(t);
        if (slot.writes.empty() && slot.reads.empty()) slot.first = task;
        slot.last = task;
        // With another pitch the columns lie elsewhere: counts as touching all columns.
        const bool all = r.pitch != b.cols;
        const int64_t c0 = all ? 0 : r.c0, c1 = all ? b.cols : r.c1;
        if (a.writes())
          slot.writes.push_back({pattern_of(p_.tasks[t], r), task, r.where, c0, c1});
        else
          slot.reads.push_back({c0, c1, task});
        slot.widest_read = std::max(slot.widest_read, a.writes() ? 0 : c1 - c0);
      }
    std::map<std::vector<Pattern>, size_t> shapes;
    for (size_t b = 0; b < slots_.size(); ++b) {
      if (p_.buffers[b].kind != ir::BufferKind::Slot || p_.buffers[b].wire) continue;
      used_.push_back(b);
      Slot& slot = slots_[b];
      slot.left = slot.writes.size();
      std::stable_sort(slot.writes.begin(), slot.writes.end(),
                       [](const Write& x, const Write& y) { return x.pattern < y.pattern; });
      std::stable_sort(slot.reads.begin(), slot.reads.end(),
                       [](const Read& x, const Read& y) { return x.c0 < y.c0; });
      slot.shape = shapes.try_emplace(shape_of(p_.buffers[b], slot), shapes.size()).first->second;
    }
    shapes_ = shapes.size();
    places_of_shape_.resize(shapes_);
  }
  static std::vector<Pattern> shape_of(const ir::Buffer& b, const Slot& slot) {
    std::vector<Pattern> shape = {
        {static_cast<int64_t>(b.dtype), b.packets, b.rotation, b.max_rows, b.cols}};
    for (const Write& w : slot.writes) shape.push_back(w.pattern);
    return shape;
  }

  /// Whether all slots but one of each shape take half of the memory. The search for what may be
  /// shared takes time, which grows with the square of the number of ranks.
  bool may_save_half() const {
    std::vector<bool> met(shapes_, false);
    int64_t bytes = 0, again = 0;
    for (size_t b : used_) {
      const int64_t own = p_.buffers[b].copy_bytes() * p_.buffers[b].rotation;
      bytes += own;
      if (met[slots_[b].shape]) again += own;
      met[slots_[b].shape] = true;
    }
    return again > 0 && 2 * again >= bytes;
  }

  void walk() {
    std::vector<TaskId> asked;
    for (size_t b : used_) {
      for (const Write& w : slots_[b].writes) asked.push_back(w.task);
      for (const Read& r : slots_[b].reads) asked.push_back(r.task);
    }
    Known known(p_, producers_of_events(p_), Known::Peers::Polled, asked);
    Clocks clocks;
    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      const auto id = ir::id_of<TaskId>(t);
      const ir::Task& task = p_.tasks[t];
      known.begin(id, clocks);
      const auto is_local = [&](const ir::Wait& w) {
        return p_[w.event].kind == ir::EventKind::Local;
      };
      const auto group = [](const ir::Wait& w) { return static_cast<uint32_t>(index(w.event)); };
      for (const ir::Wait& w : task.waits)
        if (is_local(w) && w.lag == 0) known.hear(clocks, id, group(w));
      for (const ir::Access& a : task.accesses)
        if (a.writes() && p_[a.region.buffer].kind == ir::BufferKind::Slot &&
            !p_[a.region.buffer].wire)
          write(id, a.region, known, clocks);
      known.end(id, clocks, !task.waits.empty());
      for (const ir::Wait& w : task.waits) {
        if (p_[w.event].kind == ir::EventKind::Hint) continue;
        if (is_local(w))
          known.done(group(w));
        else
          known.heard_peers(w.event);
      }
    }
    for (size_t b : used_)
      if (slots_[b].writes.empty()) places_.push_back({ir::id_of<BufferId>(b)});
    if (!known.all_met()) places_.clear();
    joins_ = known.joins();
  }

  void write(TaskId task, const ir::Region& region, const Known& known, const Clocks& clocks) {
    Slot& slot = slots_[index(region.buffer)];
    std::vector<size_t>& places = places_of_shape_[slot.shape];  // longest in use first
    if (slot.left == slot.writes.size() && p_[region.buffer].rotation > 1)
      slot.candidates.assign(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                  places.size(), kMostCandidates)));
    const Pattern pattern = pattern_of(p_[task], region);
    const auto at = std::lower_bound(
        slot.writes.begin(), slot.writes.end(), pattern,
        [](const Write& w, const Pattern& searched) { return w.pattern < searched; });
    const auto number = static_cast<size_t>(at - slot.writes.begin());
    std::erase_if(slot.candidates, [&](size_t place) {
      return slots_[index(places_[place].back())].last > slot.first ||
             !may_follow(slots_[index(places_[place].back())], number, task, known, clocks);
    });
    if (--slot.left > 0) return;

    size_t place = places_.size();
    if (slot.candidates.empty()) {
      places_.emplace_back();
    } else {
      place = slot.candidates[0];
      std::erase(places, place);
      for (size_t b : used_) std::erase(slots_[b].candidates, place);
    }
    places.push_back(place);
    places_[place].push_back(region.buffer);
  }

  bool may_follow(const Slot& other, size_t number, TaskId task, const Known& known,
                  const Clocks& clocks) const {
    // Several tasks may write there one after the other.
    const Write& w = other.writes[number];
    for (size_t i = number; i < other.writes.size() && other.writes[i].pattern == w.pattern; ++i)
      if (!known.ended(clocks, task, ir::RankRef::self(), other.writes[i].task)) return false;
    auto read = std::lower_bound(other.reads.begin(), other.reads.end(), w.c0 - other.widest_read,
                                 [](const Read& r, int64_t c0) { return r.c0 < c0; });
    for (; read != other.reads.end() && read->c0 < w.c1; ++read)
      if (read->c1 > w.c0 && !known.ended(clocks, task, w.where, read->task)) return false;
    return true;
  }

  const ir::Program& p_;
  std::vector<Slot> slots_;   // by buffer
  std::vector<size_t> used_;  // the slots among the buffers
  size_t shapes_ = 0;
  int64_t joins_ = 0;  // of clocks
  std::vector<std::vector<BufferId>> places_;
  std::vector<std::vector<size_t>> places_of_shape_;
};

}  // namespace

bool share_slots(ir::Program& program, PassContext& context) {
  int64_t bytes = 0;
  Sharing sharing(program);
  for (const std::vector<BufferId>& place : sharing.places()) {
    for (size_t i = 0; i < place.size(); ++i) {
      ir::Buffer& slot = program[place[i]];
      slot.offset = bytes;
      slot.use = slot.packets ? static_cast<int64_t>(i) : 0;
    }
    bytes += program[place[0]].copy_bytes() * program[place[0]].rotation;
  }
  place_wires(program, bytes);
  context.statistics["clocks joined by share-slots"] = sharing.joins();
  context.statistics["symmetric bytes without sharing"] = program.symmetric_bytes;
  context.statistics["symmetric bytes"] = program.symmetric_bytes = bytes;
  const std::optional<int64_t>& limit = program.limits.symmetric_bytes;
  if (!limit || bytes <= *limit) return true;
  context.diagnostics.error(
      program.limits.symmetric_loc,
      fmt::format(
          "the collectives need {} bytes of symmetric memory, but 'comm_buffer_bytes' allows {}",
          bytes, *limit));
  return false;
}

}  // namespace maco::passes
