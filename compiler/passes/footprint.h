// Where the tasks of one call touch one buffer, as an index that finds the tasks that touch given
// bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "ir/program.h"

namespace maco::passes {

/// The bytes of an access, as rows of `pitch` bytes of its buffer: rows [r0, r1), and bytes [c0,
/// c1) of each row.
struct Box {
  int64_t pitch = 1;
  int64_t r0 = 0, r1 = 0, c0 = 0, c1 = 0;
  /// By how many rows r0 (`step`) and r1 (`last_step`) move with the index of the block in which
  /// the box lies. That index is the rank's number plus `turn`, modulo `world`. The two steps
  /// differ if a block's rows depend on the launch.
  int64_t step = 0, last_step = 0;
  int64_t turn = 0, world = 1;
  /// The value that holds a block's number of rows, if only the launch knows it; -1: none.
  int64_t height = -1;
  /// The value from which rows are counted; -1: none. `spread`: by how many rows they may lie
  /// behind r0; r1 is larger by as much.
  int64_t from = -1, spread = 0;
  bool empty() const { return r0 >= r1 || c0 >= c1; }
  bool moves() const { return step != 0 || last_step != 0; }
  int64_t begin() const { return r0 * pitch + c0; }
  int64_t end() const { return (r1 - 1) * pitch + c1; }
  friend auto operator<=>(const Box&, const Box&) = default;
};

/// The box of an access, with the rows of all blocks in which it may lie.
Box box_of(const ir::Program& program, const ir::Region& region);
/// The box on one rank; it doesn't move.
Box on_rank(const Box& box, int64_t rank);
/// The smallest box that holds those of all ranks; it doesn't move.
Box on_all_ranks(const Box& box, int64_t world);
/// Whether no two of the boxes have bytes in common. They are of one buffer and don't move. If
/// their rows have different pitches, the answer may wrongly be no.
bool are_apart(std::vector<Box> boxes);

/// A box of a buffer that begins at `address`, so that boxes of different buffers in the same
/// memory can be compared.
struct Placed {
  Box box;
  int64_t address = 0;
};
/// Whether the two boxes, which don't move, have bytes in common. If their rows have different
/// pitches, the answer may wrongly be yes.
bool meet(const Placed& a, const Placed& b);
/// Whether both boxes lie in blocks of the same height in each launch, or are counted from the same
/// row. If they are of one buffer, they then have bytes in common only within the same block, as
/// their rows say.
bool have_same_blocks(const Box& a, const Box& b);
bool meet_in_block(const Box& a, const Box& b);

/// The boxes in which the tasks of one call read, or write, one buffer with one pitch. Equal boxes
/// form a class. The boxes' edges cut the buffer into cells, so that two searches find the classes
/// in a given box. If boxes overlap a great deal, cells are larger, and the search also finds
/// classes that don't meet the box.
class Footprint {
 public:
  struct Member {
    Box box;
    ir::TaskId task{};
  };
  /// Cells [r0, r1) x [c0, c1).
  struct Range {
    uint32_t r0 = 0, r1 = 0, c0 = 0, c1 = 0;
    bool empty() const { return r0 >= r1 || c0 >= c1; }
    friend auto operator<=>(const Range&, const Range&) = default;
  };

  Footprint(const ir::Program& program, ir::BufferId buffer, ir::AccessKind kind, int64_t address,
            std::vector<Member> members);

  ir::BufferId buffer() const { return buffer_; }
  ir::AccessKind kind() const { return kind_; }
  bool writes() const { return kind_ != ir::AccessKind::Read; }
  int64_t address() const { return address_; }
  /// The addresses between which the whole footprint lies.
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  /// Whether some box moves with the rank by a known number of rows. Other boxes may be anywhere in
  /// on_all_ranks(box).
  bool moves() const { return moves_; }
  /// Whether the rows of some box are counted from a value.
  bool begins_at_value() const { return begins_at_value_; }

  size_t classes() const { return boxes_.size(); }
  const Box& box(size_t k) const { return boxes_[k]; }
  /// The tasks of class `k`, ascending.
  std::pair<const ir::TaskId*, const ir::TaskId*> tasks(size_t k) const {
    return {tasks_.data() + first_[k], tasks_.data() + first_[k + 1]};
  }

  /// The cells that `other` touches on any rank.
  Range cells(const Placed& other) const;
  /// `range`, rounded out to multiples of `unit` cells.
  Range widened(Range range, uint32_t unit) const;
  /// Calls `visit(class)` once for each class that touches these cells, ascending in a cell.
  template <class Visit>
  void classes_in(const Range& range, const Visit& visit) const {
    ++stamp_;
    for (uint32_t r = range.r0; r < range.r1; ++r)
      for (uint32_t c = range.c0; c < range.c1; ++c) {
        const size_t cell = r * columns() + c;
        for (uint32_t i = cell_first_[cell]; i < cell_first_[cell + 1]; ++i) {
          const uint32_t k = cell_classes_[i];
          if (seen_[k] == stamp_) continue;
          seen_[k] = stamp_;
          visit(k);
        }
      }
  }

 private:
  size_t columns() const { return cols_.size() - 1; }
  size_t cell_count() const { return (rows_.size() - 1) * columns(); }
  void cut(int64_t world);
  bool fill(int64_t world, size_t most);

  ir::BufferId buffer_;
  ir::AccessKind kind_;
  int64_t address_, pitch_;
  int64_t begin_ = 0, end_ = 0;
  bool moves_ = false, begins_at_value_ = false;
  std::vector<Box> boxes_;            // by class
  std::vector<uint32_t> first_;       // by class: its first task
  std::vector<ir::TaskId> tasks_;     // class by class
  std::vector<int64_t> rows_, cols_;  // edges
  std::vector<uint32_t> cell_first_, cell_classes_;
  mutable std::vector<uint32_t> seen_;  // by class
  mutable uint32_t stamp_ = 0;
};

}  // namespace maco::passes
