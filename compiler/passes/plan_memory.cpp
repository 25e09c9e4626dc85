// plan_memory.cpp: assigns addresses. A temporary lives from the first task that touches it to the
// last, in Program order. Temporaries whose lives don't meet may share bytes; insert-sync orders
// their uses. But branches of a graph would then wait for each other. So only temporaries that
// follow from each other share bytes, unless that takes too much memory. Temporaries with packets
// come first and share nothing, nor do small ones beside them: packets order nobody's uses, and
// events would have to. Slots get symmetric memory of their own: peers write them whenever they are
// ready, so that lifetimes on this rank say nothing. share-slots looks at what orders ranks. On the
// CPU target, temporaries that users' kernels write share nothing either, and have red zones around
// them.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/functions/cuda_kernel.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/symmetric.h"

namespace maco::passes {

namespace {

constexpr int64_t kAlign = 256;
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Life {
  size_t first = SIZE_MAX, last = 0;
  bool used() const { return first != SIZE_MAX; }
};

// Free bytes of the arena as disjoint holes; grows at the end.
class Arena {
 public:
  int64_t take(int64_t bytes) {
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it)
      if (it->second >= bytes && (best == holes_.end() || it->second < best->second)) best = it;
    if (best != holes_.end()) {
      const int64_t at = best->first, rest = best->second - bytes;
      holes_.erase(best);
      if (rest > 0) holes_[at + bytes] = rest;
      return at;
    }
    // Nothing fits: extend the hole at the end, if there is one.
    int64_t at = end_;
    if (!holes_.empty()) {
      auto last = std::prev(holes_.end());
      if (last->first + last->second == end_) {
        at = last->first;
        holes_.erase(last);
      }
    }
    end_ = at + bytes;
    return at;
  }
  void give(int64_t at, int64_t bytes) {
    auto next = holes_.lower_bound(at);
    if (next != holes_.end() && at + bytes == next->first) {
      bytes += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    }
    holes_[at] = bytes;
  }
  int64_t bytes() const { return end_; }

 private:
  std::map<int64_t, int64_t> holes_;
  int64_t end_ = 0;
};

// The calls whose results a call's tasks need, directly or indirectly. Where calls' tasks
// alternate, some of its tasks need them.
class Needs {
 public:
  explicit Needs(const ir::Program& p)
      : words_((p.calls.size() + 63) / 64),
        needs_(p.calls.size() * words_),
        touching_(p.buffers.size()),
        writing_(p.buffers.size()) {
    for (const ir::Task& task : p.tasks) {
      const size_t c = index(task.call);
      for (const ir::Access& a : task.accesses) {
        const size_t b = index(a.region.buffer);
        if (!a.writes())
          for (const size_t w : writing_[b])
            if (w != c && !has(c, w)) add(c, w);
        add_to(touching_[b], c);
      }
      for (const ir::Access& a : task.accesses)
        if (a.writes()) add_to(writing_[index(a.region.buffer)], c);
    }
  }
  /// Whether all calls that write `later` need all calls that touch `before`.
  bool follows(size_t later, size_t before) const {
    for (const size_t w : writing_[later])
      for (const size_t t : touching_[before])
        if (!has(w, t)) return false;
    return true;
  }

 private:
  bool has(size_t c, size_t other) const {
    return (needs_[c * words_ + other / 64] >> other % 64 & 1) != 0;
  }
  void add(size_t c, size_t other) {
    for (size_t i = 0; i < words_; ++i) needs_[c * words_ + i] |= needs_[other * words_ + i];
    needs_[c * words_ + other / 64] |= uint64_t{1} << other % 64;
  }
  static void add_to(std::vector<size_t>& calls, size_t c) {
    if (std::find(calls.begin(), calls.end(), c) == calls.end()) calls.push_back(c);
  }
  size_t words_;
  std::vector<uint64_t> needs_;  // a row of bits for each call
  std::vector<std::vector<size_t>> touching_, writing_;
};

struct Place {
  int64_t begin, end;
  size_t buffer;
};

// Places temporaries from `base` on. Two share bytes if their lives don't meet and one follows from
// the other. Returns where the last one ends. `compared`: adds the pairs that were looked at.
int64_t place_apart(const ir::Program& program, const std::vector<Life>& life,
                    const std::vector<size_t>& temps, int64_t base, std::vector<int64_t>& offsets,
                    int64_t& compared) {
  const Needs needs(program);
  std::vector<Place> placed, taken;
  int64_t end = base;
  for (const size_t b : temps) {
    taken.clear();
    compared += std::ssize(placed);
    for (const Place& other : placed)
      if (life[other.buffer].last >= life[b].first || !needs.follows(b, other.buffer))
        taken.push_back(other);
    std::sort(taken.begin(), taken.end(),
              [](const Place& x, const Place& y) { return x.begin < y.begin; });
    // The smallest gap with enough room, else behind the last.
    const int64_t bytes = aligned(program.buffers[b].bytes());
    int64_t best = -1, room = 0, from = base;
    for (const Place& other : taken) {
      if (const int64_t gap = other.begin - from; gap >= bytes && (best < 0 || gap < room)) {
        best = from;
        room = gap;
      }
      from = std::max(from, other.end);
    }
    if (best < 0) best = from;
    offsets.push_back(best);
    placed.push_back({best, best + bytes, b});
    end = std::max(end, best + bytes);
  }
  return end;
}

// As place_apart, but two share bytes whenever their lives don't meet.
int64_t place_close(const ir::Program& program, const std::vector<Life>& life,
                    const std::vector<size_t>& temps, int64_t base, std::vector<int64_t>& offsets) {
  Arena arena;
  std::multimap<size_t, std::pair<int64_t, int64_t>> live;  // by last use: offset, bytes
  for (const size_t b : temps) {
    while (!live.empty() && live.begin()->first < life[b].first) {
      arena.give(live.begin()->second.first, live.begin()->second.second);
      live.erase(live.begin());
    }
    const int64_t bytes = aligned(program.buffers[b].bytes()), at = arena.take(bytes);
    offsets.push_back(base + at);
    live.emplace(life[b].last, std::pair(at, bytes));
  }
  return base + arena.bytes();
}

}  // namespace

int64_t place_slots(ir::Program& program) {
  int64_t bytes = 0;
  for (ir::Buffer& buffer : program.buffers) {
    if (buffer.kind != ir::BufferKind::Slot || buffer.wire) continue;
    buffer.offset = bytes;
    bytes += buffer.copy_bytes() * buffer.rotation;
  }
  place_wires(program, bytes);
  return bytes;
}

void place_wires(ir::Program& program, int64_t from) {
  for (ir::Buffer& wire : program.buffers) {
    if (!wire.wire) continue;
    wire.offset = from;
    from += wire.copy_bytes() * wire.rotation;
  }
}

bool plan_memory(ir::Program& program, PassContext& context) {
  std::vector<Life> life(program.buffers.size());
  for (size_t t = 0; t < program.tasks.size(); ++t)
    for (const ir::Access& a : program.tasks[t].accesses) {
      Life& l = life[index(a.region.buffer)];
      l.first = std::min(l.first, t);
      l.last = std::max(l.last, t);
    }
  // The lives are those of ops, not of tasks: the tiles of one op run together, so that a buffer
  // isn't free for the op's last tiles when its first tiles are done with it.
  std::vector<size_t> call_first(program.calls.size(), SIZE_MAX),
      call_last(program.calls.size(), 0);
  for (size_t t = 0; t < program.tasks.size(); ++t) {
    const size_t c = index(program.tasks[t].call);
    call_first[c] = std::min(call_first[c], t);
    call_last[c] = std::max(call_last[c], t);
  }
  for (Life& l : life)
    if (l.used()) {
      l.first = call_first[index(program.tasks[l.first].call)];
      l.last = call_last[index(program.tasks[l.last].call)];
    }

  constexpr int64_t kSmall = 64 << 10;
  const bool any_packets = std::any_of(program.buffers.begin(), program.buffers.end(),
                                       [](const ir::Buffer& b) { return b.own_packets(); });
  const std::vector<bool> zoned = functions::users_temporaries(program);
  std::vector<size_t> temps, alone;  // alone: placed after those with packets
  int64_t unshared = 0;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].kind == ir::BufferKind::Temp && life[b].used()) {
      const int64_t bytes = aligned(program.buffers[b].bytes());
      if (!program.buffers[b].packets && !zoned[b])
        (any_packets && bytes <= kSmall ? alone : temps).push_back(b);
      unshared += bytes;
    }
  std::stable_sort(temps.begin(), temps.end(),
                   [&](size_t a, size_t b) { return life[a].first < life[b].first; });
  int64_t base = 0;
  const auto take = [&](size_t b) {
    program.buffers[b].offset = base;
    base += aligned(program.buffers[b].bytes());
  };
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].own_packets() && life[b].used()) take(b);
  for (const size_t b : alone) take(b);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (!zoned[b] || !life[b].used()) continue;
    base += functions::kRedZoneBytes;
    take(b);
    base += functions::kRedZoneBytes;
  }
  // Memory that every GPU has, and numbers for which the search takes no noticeable time.
  constexpr int64_t kRoom = int64_t{1} << 30;
  constexpr size_t kMostCalls = 4096, kMostTemps = 2048;
  std::vector<int64_t> offsets;
  program.arena_bytes = place_close(program, life, temps, base, offsets);
  if (program.calls.size() <= kMostCalls && temps.size() <= kMostTemps) {
    std::vector<int64_t> apart;
    int64_t& compared = context.statistics["temporaries compared by plan-memory"];
    const int64_t bytes = place_apart(program, life, temps, base, apart, compared);
    if (bytes <= std::max(kRoom, program.arena_bytes)) {
      program.arena_bytes = bytes;
      offsets = std::move(apart);
    }
  }
  for (size_t i = 0; i < temps.size(); ++i) program.buffers[temps[i]].offset = offsets[i];
  // A buffer that no task touches may lie anywhere, such as a result of appended rows that nobody
  // else reads.
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (ir::Buffer& unused = program.buffers[b];
        unused.kind == ir::BufferKind::Temp && !life[b].used()) {
      unused.offset = 0;
      program.arena_bytes = std::max(program.arena_bytes, aligned(unused.bytes()));
    }

  program.symmetric_bytes = place_slots(program);
  program.stage = ir::Stage::Planned;
  context.statistics["arena bytes"] = program.arena_bytes;
  context.statistics["arena bytes without reuse"] = unshared;
  return true;
}

}  // namespace maco::passes
