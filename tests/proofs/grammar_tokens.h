// Numbers, words, strings and other characters of a line.
#pragma once

#include <string_view>
#include <vector>

namespace maco::proofs {

struct Token {
  // 'n' integer, 'x' mask, 'f' float, 'w' word, 's' string, else the character itself
  char kind = 0;
  size_t begin = 0, end = 0;
};

std::vector<Token> tokens_of(std::string_view text);

}  // namespace maco::proofs
