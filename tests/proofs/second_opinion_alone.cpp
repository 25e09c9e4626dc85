// second_opinion_alone.cpp: what stands by itself, without an order of tasks.

#include <map>
#include <set>

#include "tests/proofs/second_opinion_parts.h"
#include "tests/unit/block_heights.h"

namespace maco::proofs {

namespace {

using ir::Access;
using ir::BufferKind;
using ir::Program;
using ir::RankRef;
using ir::Task;

/// Whether the list of tasks reads an element of a temporary or output before writing it, or leaves
/// an element of an output unwritten: element by element, at the maximum rows.
bool undefined(const Program& p, int world) {
  // By buffer and rank: whether each element is written.
  std::map<std::pair<size_t, int>, std::vector<bool>> written;
  std::map<size_t, std::set<uint32_t>> by_height;
  for (const Task& t : p.tasks)
    for (const Access& a : t.accesses)
      if (a.writes() && a.region.block.value)
        by_height[index(a.region.buffer)].insert(*a.region.block.value);
  const auto is_filled = [&](size_t b) {
    return p.buffers[b].kind == BufferKind::Temp || p.buffers[b].kind == BufferKind::Output;
  };
  for (size_t b = 0; b < p.buffers.size(); ++b)
    for (int rank = 0; rank < world && is_filled(b); ++rank)
      written[{b, rank}].assign(static_cast<size_t>(p.buffers[b].max_elements()), false);
  const auto each = [&](const ir::Region& r, int rank, const auto& f) {
    std::vector<int64_t> shifts = {0};
    if (r.block.any()) {
      shifts.clear();
      for (int block : ranks_of(r.block.ref, rank, world))
        shifts.push_back(block *
                         (r.block.value ? p.values[*r.block.value].range.hi : r.block.rows));
    }
    for (int64_t shift : shifts)
      for (int64_t row = r.r0 + shift; row < r.r1 + shift; ++row)
        for (int64_t column = r.c0; column < r.c1; ++column)
          f(static_cast<size_t>(row * r.pitch + column));
  };
  for (const Task& t : p.tasks)
    for (int rank = 0; rank < world; ++rank) {
      if (!runs(t, rank)) continue;
      for (const Access& a : t.accesses) {
        const size_t b = index(a.region.buffer);
        if (a.writes() || !is_filled(b)) continue;
        const std::vector<bool>& there = written[{b, rank}];
        bool whole = true;
        each(a.region, rank, [&](size_t i) { whole = whole && there[i]; });
        // Rows are elsewhere where blocks are lower.
        if (by_height.count(b) && !a.region.block.value) {
          const ir::Interval heights = p.values[*by_height[b].begin()].range;
          const ir::Region& r = a.region;
          const bool simple =
              by_height[b].size() == 1 && !r.block.any() && r.pitch == p.buffers[b].cols;
          whole = simple || std::find(there.begin(), there.end(), false) == there.end();
          for (int64_t h = std::max<int64_t>(heights.lo, 1); simple && h <= heights.hi; ++h)
            for (int64_t row = r.r0; row < std::min(r.r1, world * h); ++row)
              for (int64_t column = r.c0; column < r.c1; ++column)
                whole =
                    whole &&
                    there[static_cast<size_t>((row / h * heights.hi + row % h) * r.pitch + column)];
        }
        if (!whole) return true;
      }
      for (const Access& a : t.accesses) {
        const size_t b = index(a.region.buffer);
        if (!a.writes() || !is_filled(b)) continue;
        std::vector<bool>& there = written[{b, rank}];
        each(a.region, rank, [&](size_t i) { there[i] = true; });
      }
    }
  for (const auto& [key, there] : written)
    if (p.buffers[key.first].kind == BufferKind::Output &&
        std::find(there.begin(), there.end(), false) != there.end())
      return true;
  return false;
}

/// Whether a task writes bytes that it also touches as something else.
bool overwrites_its_own(const Program& p, int world) {
  for (const Task& t : p.tasks)
    for (const Access& w : t.accesses)
      for (const Access& o : t.accesses) {
        if (!w.writes() || &w == &o || (!o.writes() && o.region == w.region)) continue;
        const ir::Buffer &a = p[w.region.buffer], &b = p[o.region.buffer];
        if (space_of(a) != space_of(b)) continue;
        for (int rank = 0; rank < world; ++rank) {
          if (!runs(t, rank)) continue;
          const std::vector<int> mine = reaches(p, w, rank), others = reaches(p, o, rank);
          const bool same = std::any_of(mine.begin(), mine.end(), [&](int m) {
            return std::count(others.begin(), others.end(), m) > 0;
          });
          if (same && meet(bytes_of(p, w, rank), bytes_of(p, o, rank)) &&
              test::meet_at_some_height(p, w.region, rank, o.region, rank))
            return true;
        }
      }
  return false;
}

/// Whether tasks end with a ring of `ring` pages, if they hold `held` pages at a time and take the
/// next page before they release the oldest. The function simulates them, a page at a time.
bool ring_moves(int64_t held, int64_t ring) {
  int64_t empty = ring, full = 0, taken = 0;
  for (int64_t step = 0; step < 4 * (ring + held); ++step) {
    if (taken > held)
      --taken, ++empty;
    else if (full > 0)
      --full, ++taken;
    else if (empty > 0)
      --empty, ++full;
    else
      return false;
  }
  return true;
}

}  // namespace

std::string structure(const Program& p) {
  const int world = static_cast<int>(p.world);
  for (const ir::Call& c : p.calls)
    for (const ir::Transfer& x : c.transfers)
      if (x.kind == ir::Transfer::Kind::Clear && !x.from.empty())
        return "structure: zeros that come from somewhere";
  for (const Task& t : p.tasks)
    for (const Access& a : t.accesses) {
      const ir::Region& r = a.region;
      const ir::Buffer& b = p[r.buffer];
      if (b.packets && r.pitch != b.cols) return "structure: packets seen with another pitch";
      if (b.own_packets() && (a.kind == ir::AccessKind::MayWrite || r.block.any()))
        return "structure: packets that not every launch sends";
      if (r.from &&
          (b.kind != BufferKind::State || r.block.any() || a.kind == ir::AccessKind::Write))
        return "structure: rows from a value on, not of a state that is read or may be written";
      for (int rank = 0; rank < world; ++rank) {
        if (!runs(t, rank)) continue;
        if (r.r1 > r.r0 && r.c1 > r.c0) {
          const ir::Interval shift = shift_of(p, r, rank);
          const int64_t first = r.r0 + shift.lo, last = r.r1 + shift.hi - 1;
          if (first < 0 || r.c0 < 0 || r.c1 > r.pitch ||
              last * r.pitch + r.c1 > b.max_rows * b.cols)
            return "structure: a region outside of its buffer";
        }
        const std::vector<int> where = ranks_of(r.where, rank, world);
        const bool mine = where == std::vector<int>{rank};
        if (!mine && r.where != RankRef::self() && !(a.writes() && b.kind == BufferKind::Slot))
          return "structure: memory of a peer that is not for peers";
      }
    }
  struct Piece {
    int64_t begin, end;
    const ir::Buffer* slot;
  };
  std::vector<Piece> pieces;
  for (const ir::Buffer& b : p.buffers) {
    if (b.kind == BufferKind::Temp && *b.offset + b.bytes() > p.arena_bytes)
      return "structure: a temporary outside of the arena";
    if (b.packets && b.kind != BufferKind::Slot) {
      if (!b.own_packets() || !b.rows.is_constant() || b.use != 0 ||
          (size_of(b.dtype) != 2 && size_of(b.dtype) != 4))
        return "structure: packets that can't be";
      for (const ir::Buffer& other : p.buffers)
        if (other.kind == BufferKind::Temp && other.name != b.name &&
            *other.offset < *b.offset + b.bytes() && *b.offset < *other.offset + other.bytes())
          return "structure: packets that share bytes";
    }
    if (b.kind != BufferKind::Slot) continue;
    const int64_t end = *b.offset + up(b.bytes(), 256) * b.rotation;
    if (b.wire ? !b.packets || *b.offset < p.symmetric_bytes : end > p.symmetric_bytes)
      return "structure: a slot outside of symmetric memory, or a wire within";
    if (b.use < 0 || b.use >= 65536 || (b.use > 0 && !b.packets))
      return "structure: a use that no table holds";
    // Slots in one place are there in the same launches, and their packets differ.
    for (const Piece& other : pieces) {
      if (*b.offset >= other.end || other.begin >= end) continue;
      const bool one_place = *b.offset == other.begin && end == other.end &&
                             b.rotation == other.slot->rotation && b.packets == other.slot->packets;
      if (!one_place || (b.packets && b.use == other.slot->use))
        return "structure: two slots at one address";
    }
    pieces.push_back({*b.offset, end, &b});
  }
  std::set<std::pair<int32_t, int32_t>> places;
  std::map<int32_t, int32_t> lengths;
  for (const Task& t : p.tasks) {
    if (!places.emplace(t.sm, t.place).second) return "structure: two tasks at one place";
    ++lengths[t.sm];
    bool role = false;
    for (const ir::CtaRange& range : p.roles)
      role = role || (t.sm >= range.begin && t.sm < range.end && range.role == t.role &&
                      (range.ops.empty() ||
                       std::count(range.ops.begin(), range.ops.end(), p[t.call].op_kind) > 0));
    if (!role) return "structure: a task where its role isn't";
  }
  for (const auto& [sm, place] : places)
    if (place < 0 || place >= lengths[sm]) return "structure: a gap in a stream";
  // The list of tasks fills temporaries and outputs before it reads them, and fills all outputs.
  if (overwrites_its_own(p, world)) return "structure: a task overwrites what it touches";
  return undefined(p, world) ? "structure: a read of what nobody wrote" : "";
}

std::string loads(const Program& p) {
  const int world = static_cast<int>(p.world);
  // By space and memory; with the writer's place in the list.
  std::map<std::pair<std::string, int>, std::vector<std::pair<uint32_t, Bytes>>> written;
  for (uint32_t i = 0; i < p.tasks.size(); ++i)
    for (const Access& a : p.tasks[i].accesses)
      for (int rank = 0; a.writes() && rank < world; ++rank)
        if (runs(p.tasks[i], rank))
          for (int memory : reaches(p, a, rank))
            written[{space_of(p[a.region.buffer]), memory}].push_back({i, bytes_of(p, a, rank)});
  for (size_t c = 0; c < p.calls.size(); ++c) {
    const ir::Call& call = p.calls[c];
    int64_t held = 0;
    for (const ir::Load& l : call.loads) {
      if (l.ring > 0 || l.pages < 1 || l.operand >= call.operands.size())
        return fmt::format("loads: '{}' loads what it can't", call.op);
      // Page k of the ring has these bytes, and is the target of copies of 128 bytes at a time.
      for (int64_t k = 0; k < p.uses.pages; ++k)
        if (k * p.uses.page_bytes % 128 != 0 || l.page_bytes < 1 ||
            k * p.uses.page_bytes + l.page_bytes > (k + 1) * p.uses.page_bytes)
          return fmt::format("loads: '{}' fills more than a page", call.op);
      held += l.pages;
      for (uint32_t t = 0; t < p.tasks.size(); ++t) {
        if (index(p.tasks[t].call) != c) continue;
        bool reads = false;
        for (const Access& a : p.tasks[t].accesses) {
          if (a.writes() || a.region.buffer != call.operands[l.operand]) continue;
          reads = true;
          for (int rank = 0; l.ahead && rank < world; ++rank) {
            if (!runs(p.tasks[t], rank)) continue;
            const auto at = written.find({space_of(p[a.region.buffer]), rank});
            if (at == written.end()) continue;
            const Bytes bytes = bytes_of(p, a, rank);
            for (const auto& [writer, other] : at->second)
              if (writer <= t && meet(bytes, other))
                return fmt::format("loads: {} loads ahead what is written before it",
                                   describe(p, ir::id_of<ir::TaskId>(t)));
          }
        }
        if (!reads)
          return fmt::format("loads: {} loads what it doesn't read",
                             describe(p, ir::id_of<ir::TaskId>(t)));
      }
    }
    if (!call.loads.empty() && !ring_moves(held, p.uses.pages))
      return fmt::format("loads: '{}' waits for a page that its loader has no room for", call.op);
  }
  return "";
}

}  // namespace maco::proofs
