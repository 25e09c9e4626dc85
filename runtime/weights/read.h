// Fills slices of params from files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/status.h"
#include "runtime/weights/files.h"
#include "runtime/weights/slices.h"

namespace maco::runtime {

/// For one thread. Large runs are read straight to their destination. The rest is read many rows at
/// once into a buffer, for all images that need these rows, and converted from there.
class SliceReader {
 public:
  /// `buffer`: the size of that buffer, which is allocated when needed. The other arguments must
  /// outlive the object.
  SliceReader(const WeightMap& map, const WeightFiles& files, size_t buffer)
      : map_(map), files_(files), most_(buffer) {}

  /// `images`: as many as slice.images(), each of slice.bytes() bytes. `read`: how many bytes of
  /// the checkpoint, and of values, were used.
  Status fill(const WeightSlice& slice, std::span<std::byte* const> images, int64_t& read);

 private:
  using Pieces = std::span<const WeightPiece>;

  /// Fills pieces of the same rows of one source.
  Status fill_rows(const WeightSlice& slice, Pieces pieces, std::span<std::byte* const> images);
  /// Whether the piece's elements can be read straight to their destination, by few calls.
  bool is_direct(const WeightSlice& slice, const WeightPiece& piece) const;
  Status read_direct(const WeightSlice& slice, const WeightPiece& piece, std::byte* image);
  /// Through the buffer: reads columns [begin, end) of the rows, which contain all the pieces.
  Status read_buffered(const WeightSlice& slice, Pieces pieces, int64_t begin, int64_t end,
                       std::span<std::byte* const> images);

  const WeightMap& map_;
  const WeightFiles& files_;
  const size_t most_;
  std::vector<std::byte> buffer_;
};

}  // namespace maco::runtime
