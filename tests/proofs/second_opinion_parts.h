// What the parts of the second opinion share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/proofs/rank_list.h"
#include "tests/proofs/second_opinion.h"

namespace maco::proofs {

/// Bounds, addresses, streams, what every task declares: what stands by itself.
std::string structure(const ir::Program& program);
/// What loaders bring, and that their rings have room for it.
std::string loads(const ir::Program& program);
/// Buffers that share bytes mean what they would with bytes of their own.
std::string meaning(const ir::Program& program);
/// Carries collectives out element by element, its tasks (rank, task) in this order.
std::string delivery(const ir::Program& program,
                     const std::vector<std::pair<int, uint32_t>>& order);

inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline bool runs(const ir::Task& t, int rank) { return (t.ranks >> rank) & 1; }
inline bool has(const std::vector<int>& list, int n) {
  return std::find(list.begin(), list.end(), n) != list.end();
}

/// The ranks whose memory an access of a task on `runner` reaches.
inline std::vector<int> reaches(const ir::Program& p, const ir::Access& a, int runner) {
  if (p[a.region.buffer].kind != ir::BufferKind::Slot) return {runner};
  return ranks_of(a.region.where, runner, static_cast<int>(p.world));
}

/// In copy 0, from the buffer's address or the tensor's begin.
inline Bytes bytes_of(const ir::Program& p, const ir::Access& a, int runner) {
  const ir::Region& r = a.region;
  const ir::Buffer& b = p[r.buffer];
  const ir::Interval shift = shift_of(p, r, runner);
  const int64_t size = size_of(b.dtype), first = r.r0 + shift.lo, rows = r.r1 + shift.hi - first;
  if (rows <= 0 || r.c1 <= r.c0) return {};
  const int64_t base = b.offset.value_or(0);
  if (!b.packets)
    return {base + (first * r.pitch + r.c0) * size, r.pitch * size, rows, (r.c1 - r.c0) * size};
  // Each element beside its flag.
  if (b.own_packets()) {
    const int64_t row = up(b.cols * size, 4) * 2;
    return {base + first * row + r.c0 * size * 2, row, rows, (r.c1 - r.c0) * size * 2};
  }
  // 4 bytes of payload, 4 of flag.
  const int64_t begin = r.c0 * size / 4, end = up(r.c1 * size, 4) / 4,
                row = up(b.cols * size, 4) / 4;
  return {base + (first * row + begin) * 8, row * 8, rows, (end - begin) * 8};
}

/// Buffers of one space may share bytes.
inline std::string space_of(const ir::Buffer& b) {
  if (b.kind == ir::BufferKind::Temp) return "<arena>";
  if (b.kind == ir::BufferKind::Slot) return "<slots>" + fmt::to_string(*b.offset);
  return b.tensor.empty() ? "<internal>" + b.name : b.tensor;
}

inline int max_rotation(const ir::Program& p) {
  int64_t most = 0;
  for (const ir::Buffer& b : p.buffers)
    if (b.kind == ir::BufferKind::Slot && p.world > 1) most = std::max(most, b.rotation);
  return static_cast<int>(most);
}

}  // namespace maco::proofs
