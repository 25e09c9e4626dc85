// Which share of the slowest tests this run executes: $MACO_TEST_PART.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace maco::test {

/// The part `index` of `of`; the whole by default.
struct Part {
  uint64_t index = 0, of = 1;  // index < of
  /// Whether item `i` belongs to this part. Neighbours belong to different parts, and so do items a
  /// few `of` apart. With an odd number of parts, each has some of every fourth or eighth item.
  bool has(uint64_t i) const { return (i + i / of) % of == index; }
};

/// "2/3" is the second of three parts, all of it where the variable isn't set. Anything else, or an
/// even number of parts, ends the process with status 2.
inline Part part_of_tests() {
  const char* text = std::getenv("MACO_TEST_PART");
  if (!text || !*text) return {};
  unsigned index = 0, of = 0;
  int used = 0;
  if (std::sscanf(text, "%3u/%3u%n", &index, &of, &used) != 2 || text[used] || index < 1 ||
      index > of || of % 2 == 0) {
    std::fprintf(stderr, "MACO_TEST_PART is '%s': write a part and their odd number, as in 2/3\n",
                 text);
    std::exit(2);
  }
  return {index - 1, of};
}

/// For checks that together take minutes; each part of the tests runs some of them.
inline void by_turns(uint64_t turn, void (*check)()) {
  if (part_of_tests().has(turn)) check();
}

}  // namespace maco::test
