// Params cut into pieces of a few megabytes, which threads fill one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/weights/map.h"

namespace maco::runtime {

/// A param's memory on a rank of this process.
struct WeightPlace {
  int rank = 0;
  size_t tensor = 0;            // for the session's writer, if `memory` is null
  std::byte* memory = nullptr;  // ordinary memory
};
/// A param, and the ranks on which it is filled.
struct WeightTarget {
  const WeightParam* param = nullptr;
  std::vector<WeightPlace> places;
  /// How many images a slice of it has: one if all ranks have the same, else one for each place.
  size_t images() const { return param->same ? 1 : places.size(); }
};

/// Rows of a param, or some columns of one of its rows: contiguous in the param's memory.
struct WeightSlice {
  const WeightTarget* target = nullptr;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  /// The bytes of an image, and where it begins in the param.
  size_t bytes() const;
  size_t offset() const;
};

/// All slices of the targets; a slice's images take at most `bytes` bytes together (but have at
/// least one element each). Slices of one file come in its order, and files take turns.
std::vector<WeightSlice> slice_weights(const WeightMap& map,
                                       const std::vector<WeightTarget>& targets, size_t bytes);

/// A piece of a source that goes into an image of a slice. Both have the same elements, except that
/// `transpose` may swap axes.
struct WeightPiece {
  size_t image = 0;
  size_t source = 0;
  int64_t row = 0, rows = 0, col = 0, cols = 0;  // in the source
  int64_t to_row = 0, to_col = 0;                // in the slice
  bool transpose = false;
  std::optional<float> plus;
};
/// The pieces of a slice: those of the same rows of a source follow each other, by columns.
std::vector<WeightPiece> pieces_of(const WeightSlice& slice);

/// Bytes of the checkpoint, and of values, that go into a target. What several ranks have counts
/// once.
int64_t bytes_read(const WeightMap& map, const WeightTarget& target);
/// As above, for a slice with these pieces.
int64_t bytes_read(const WeightMap& map, const WeightSlice& slice,
                   const std::vector<WeightPiece>& pieces);

}  // namespace maco::runtime
