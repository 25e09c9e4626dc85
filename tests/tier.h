// How much of a long sweep a run has: all with $MACO_TEST_MORE, as `tools/test.sh more` sets it.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace maco::test {

/// Whether everything is wanted, however long it takes.
inline bool wants_more() {
  const char* more = std::getenv("MACO_TEST_MORE");
  return more && *more;
}

/// One in `of` items of a sweep: the same ones in every run.
struct Share {
  uint64_t of = 1;  // has no factor in common with how often a kind of item comes
  bool has(uint64_t i) const { return i % of == 0; }
};

/// One in `of`; everything with $MACO_TEST_MORE.
inline Share share(uint64_t of) { return {wants_more() ? 1 : of}; }

}  // namespace maco::test
