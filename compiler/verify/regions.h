// The bytes that an access touches.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/verify/model.h"

namespace maco::verify {

/// `rows` runs of `width` bytes, `pitch` bytes apart. One run (rows == 1) has pitch 0.
struct Box {
  int64_t start = 0, pitch = 0, rows = 0, width = 0;
  int64_t end() const { return start + (rows - 1) * pitch + width; }
  bool empty() const { return rows == 0; }
  friend auto operator<=>(const Box&, const Box&) = default;
};

/// Whether two boxes have a byte in common. Exact unless both have more than a thousand rows of
/// different pitch: then of the ranges from first to last byte.
bool overlap(const Box& a, const Box& b);
/// Whether `a` surely holds all of `b`.
bool covers(const Box& a, const Box& b);

/// Numbers the bytes that tasks of a rank may touch: the arena of temporaries, symmetric memory,
/// then the caller's tensors. Buffers that share an address, or a tensor, share numbers.
class Layout {
 public:
  explicit Layout(const ir::Program& program);

  /// False for what nobody writes, which can't race.
  bool matters(ir::BufferId buffer) const { return base_[index(buffer)] >= 0; }
  /// The bytes of `region` for a task of rank `runner`, in copy `copy` of the buffer. Packets: with
  /// their flags, rounded outwards.
  Box box(const ir::Region& region, int runner, int64_t copy) const;

 private:
  const ir::Program& program_;
  std::vector<int64_t> base_;  // by buffer
};

}  // namespace maco::verify
