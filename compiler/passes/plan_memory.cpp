// plan_memory.cpp: addresses. A temporary lives from the first task that touches it to the last, in
// Program order; temporaries whose lives don't meet may share bytes (insert-sync orders their
// uses). Those with packets come first and share nothing, nor do small ones beside them: packets
// order nobody's uses, so that events would have to. Slots get symmetric memory of their own:
// peers write them whenever they are ready, so that lifetimes on this rank say nothing; share-slots
// looks at what orders ranks.

#include <algorithm>
#include <map>

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
    // Nothing fits: extend a hole at the end, if there is one.
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
  // Lives of ops, not of tasks: the tiles of one op run together, so a buffer that its first tiles
  // are done with is not free for its last.
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
  std::vector<size_t> temps, alone;  // alone: after those with packets
  int64_t unshared = 0;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].kind == ir::BufferKind::Temp && life[b].used()) {
      const int64_t bytes = aligned(program.buffers[b].bytes());
      if (!program.buffers[b].packets)
        (any_packets && bytes <= kSmall ? alone : temps).push_back(b);
      unshared += bytes;
    }
  std::stable_sort(temps.begin(), temps.end(),
                   [&](size_t a, size_t b) { return life[a].first < life[b].first; });
  Arena arena;
  for (size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].own_packets() && life[b].used())
      program.buffers[b].offset = arena.take(aligned(program.buffers[b].bytes()));
  for (size_t b : alone)
    program.buffers[b].offset = arena.take(aligned(program.buffers[b].bytes()));
  std::multimap<size_t, size_t> live;  // by last use
  for (size_t b : temps) {
    while (!live.empty() && live.begin()->first < life[b].first) {
      const size_t dead = live.begin()->second;
      arena.give(*program.buffers[dead].offset, aligned(program.buffers[dead].bytes()));
      live.erase(live.begin());
    }
    program.buffers[b].offset = arena.take(aligned(program.buffers[b].bytes()));
    live.emplace(life[b].last, b);
  }
  program.arena_bytes = arena.bytes();
  // What no task touches, as what a product appends and nobody else reads, may lie anywhere.
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
