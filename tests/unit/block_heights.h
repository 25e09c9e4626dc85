// Regions in blocks whose height only the launch knows, height by height, and those whose rows are
// counted from what only the launch knows.
#pragma once

#include <algorithm>

#include "ir/program.h"

namespace maco::test {

/// Whether two regions of a rank's own memory, which may meet at some heights of their blocks or
/// wherever their rows begin, have an element in common in some launch. The answer is yes for
/// regions other than two of one buffer, pitch and height or first row.
inline bool meet_at_some_height(const ir::Program& p, const ir::Region& a, int rank_a,
                                const ir::Region& b, int rank_b) {
  if (a.from && a.from == b.from && a.buffer == b.buffer && a.pitch == b.pitch)
    return std::max(a.r0, b.r0) < std::min(a.r1, b.r1) &&
           std::max(a.c0, b.c0) < std::min(a.c1, b.c1);
  if (!a.block.value || a.block.value != b.block.value || a.buffer != b.buffer ||
      a.pitch != b.pitch || p[a.buffer].kind == ir::BufferKind::Slot)
    return true;
  const auto world = static_cast<int>(p.world);
  const auto blocks_a = ir::resolve(a.block.ref, rank_a, world),
             blocks_b = ir::resolve(b.block.ref, rank_b, world);
  if (blocks_a.size() != 1 || blocks_b.size() != 1) return true;
  if (a.c0 >= b.c1 || b.c0 >= a.c1) return false;
  const ir::Interval heights = p.values[*a.block.value].range;
  for (int64_t height = heights.lo; height <= heights.hi; ++height) {
    // A region ends where its block does.
    const int64_t first_a = blocks_a.front() * height + a.r0,
                  first_b = blocks_b.front() * height + b.r0;
    const int64_t last_a = blocks_a.front() * height + std::min(a.r1, height),
                  last_b = blocks_b.front() * height + std::min(b.r1, height);
    if (std::max(first_a, first_b) < std::min(last_a, last_b)) return true;
  }
  return false;
}

}  // namespace maco::test
