#include "tests/fuzz/part.h"

#include <cstdio>
#include <cstdlib>

namespace maco::fuzz {

Part part_of_tests() {
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

}  // namespace maco::fuzz
