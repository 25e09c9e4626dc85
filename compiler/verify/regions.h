// The bytes that an access touches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "compiler/verify/model.h"

namespace maco::verify {

/// `rows` runs of `width` bytes, `pitch` bytes apart. One run (rows == 1) has pitch 0.
///
/// Where a region lies in a block whose height only the launch knows, these are the bytes that it
/// may have at any height. What is known of two such regions, in blocks of the same buffer, height
/// and pitch: different blocks are disjoint, and in one block rows are rows, whatever the height.
/// So each such `space` of blocks has coordinates of its own, with blocks as high as they may be;
/// they are compared within the space. So are regions whose rows are counted from the same value.
struct Box {
  int64_t start = 0, pitch = 0, rows = 0, width = 0;
  // In the space's coordinates, if there is one; no two spaces share any.
  int64_t start_in_space = 0;
  int32_t space = 0;  // 0: none
  int32_t pitch_in_space = 0, rows_in_space = 0, width_in_space = 0;
  int64_t end() const { return start + (rows - 1) * pitch + width; }
  bool empty() const { return rows == 0; }
  Box in_space() const {
    return {start_in_space, rows_in_space == 1 ? 0 : pitch_in_space, rows_in_space, width_in_space};
  }
  friend auto operator<=>(const Box&, const Box&) = default;
};

/// Whether two boxes have a byte in common. Exact unless both have more than a thousand rows of
/// different pitch: then of the ranges from first to last byte.
bool overlap(const Box& a, const Box& b);
/// Whether `a` surely holds all of `b`: then whatever overlaps `b` overlaps `a`.
bool covers(const Box& a, const Box& b);

/// What other boxes leave of a box. Counted in cells of the first one's size, of which there may be
/// 64, so that something may seem to be left where nothing is.
class Rest {
 public:
  /// Takes `part` from `whole`, which is the same in each call. True: every byte of it was taken;
  /// then whatever overlaps it overlaps a part.
  bool take(Box whole, Box part);
  /// Whether any part was taken into account. A part counts if it overlaps the whole and makes no
  /// more than 64 cells.
  bool begun() const { return !fresh_; }

 private:
  void take_rows(int64_t row, int64_t column, int64_t rows, int64_t width);
  bool fresh_ = true;
  int32_t space_ = 0;  // of the parts
  // Pitch, rows and width of the whole. If the whole is one run and the first part has several, its
  // rows are as far apart as the part's.
  int64_t pitch_ = 0, rows_ = 0, width_ = 0;
  int64_t cell_rows_ = 0, cell_width_ = 0;
  uint64_t left_ = 0;  // a bit a cell
};

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
  /// How many spaces of blocks there are (Box::space), from 1.
  int32_t spaces() const { return static_cast<int32_t>(spaces_.size()); }

 private:
  struct Space {
    int32_t number = 0;
    int64_t base = 0;  // of its coordinates
  };
  struct SpaceKey {
    ir::BufferId buffer{};
    bool from = false;   // rows are counted from the value, which else is a block's height
    uint32_t value = 0;  // of the Program
    int64_t pitch = 0;   // in bytes
    friend auto operator<=>(const SpaceKey&, const SpaceKey&) = default;
  };
  std::optional<SpaceKey> space_of(const ir::Region& region) const;
  void find_spaces();
  void place_in_space(const ir::Region& region, int runner, Box& box) const;

  const ir::Program& program_;
  std::vector<int64_t> base_;  // by buffer
  std::map<SpaceKey, Space> spaces_;
};

}  // namespace maco::verify
