// Which share of what takes longest a run of tests has: $MACO_TEST_PART.
#pragma once

#include <cstdint>

namespace maco::fuzz {

/// The part `index` of `of`; the whole by default.
struct Part {
  uint64_t index = 0, of = 1;  // index < of
  /// Whether item `i` belongs to this part: neighbours belong to different ones, and so do items a
  /// few `of` apart. Each part of an odd number has some of what every fourth or eighth item has.
  bool has(uint64_t i) const { return (i + i / of) % of == index; }
};

/// "2/3" is the second of three parts, all of it where the variable isn't set. Anything else, or an
/// even number of parts, ends the process with status 2.
Part part_of_tests();

}  // namespace maco::fuzz
