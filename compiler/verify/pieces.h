// What lies where while the transfers of a collective are followed: boxes of a buffer, each with
// what it holds of the collective's operand.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "compiler/verify/regions.h"
#include "ir/program.h"

namespace maco::verify {

/// Elements of block `block` of `tensor`, of these ranks: one of them, or the reduction of several.
/// `at` counts elements from the start of the block. Where dims cut rows, `cut` says which rows are
/// there; regions with the same number are cut alike, 0 is not cut.
struct Content {
  ir::BufferId tensor{};
  uint64_t ranks = 0;
  bool reduced = false;
  int64_t block = 0;
  Box at{};
  uint32_t cut = 0;
  ir::Reduction reduce = ir::Reduction::Sum;  // if reduced
  /// Not 0: why it is nothing that a collective could deliver (the caller's number for it).
  uint32_t fault = 0;
  friend bool operator==(const Content&, const Content&) = default;
};

/// `rows` runs of `width` elements, `pitch` apart, as one run where they touch.
Box joined(Box box);

/// The pieces of one buffer on one rank. Boxes are in elements of the buffer.
class Pieces {
 public:
  struct Piece {
    Box box;
    Content content;
    uint32_t task = 0;  // that wrote it
  };
  /// Writes a piece; what it overlaps is gone.
  void write(const Piece& piece);
  /// Forgets what overlaps `box`.
  void clear(const Box& box);
  /// What `box` holds: a piece, or a part of one that can be described as a box of it.
  std::optional<Content> read(const Box& box) const;
  bool empty() const { return pieces_.empty(); }
  auto begin() const { return pieces_.begin(); }
  auto end() const { return pieces_.end(); }

 private:
  /// The first piece from `at` on that may overlap `box`. `pieces`: pieces_, const or not.
  template <class M, class At>
  At next_near(M& pieces, const Box& box, At at) const;
  /// Whether a box lies in columns of a matrix whose rows are so long.
  static bool in_columns(const Box& box, int64_t pitch);

  std::map<int64_t, Piece> pieces_;  // by first element, which two that don't overlap never share
  int64_t longest_ = 0;              // from first element to last, of any piece
  // If all pieces lie in columns of one matrix: how long its rows are, and the widest of them. Of
  // tiles side by side in several rows nearly all begin between a box's first element and its last.
  int64_t pitch_ = 0, widest_ = 0;
  bool mixed_ = false;
};

}  // namespace maco::verify
