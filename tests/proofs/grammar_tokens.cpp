#include "tests/proofs/grammar_tokens.h"

#include <algorithm>
#include <cctype>

#include "ir/program_syntax.h"

namespace maco::proofs {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

Token number_at(std::string_view text, size_t at) {
  Token t{'n', at, at};
  if (text.substr(at, 2) == "0x") {
    for (t.end += 2; t.end < text.size() && std::isxdigit(static_cast<unsigned char>(text[t.end]));)
      ++t.end;
    t.kind = 'x';
    return t;
  }
  if (text[t.end] == '-') ++t.end;
  const auto digits = [&] {
    while (t.end < text.size() && digit(text[t.end])) ++t.end;
  };
  digits();
  const auto next = [&](size_t n) { return t.end + n < text.size() ? text[t.end + n] : '\0'; };
  if (next(0) == '.' && digit(next(1))) {
    t.kind = 'f';
    ++t.end;
    digits();
  }
  if (next(0) == 'e' && (digit(next(1)) || next(1) == '-' || next(1) == '+')) {
    t.kind = 'f';
    t.end += 2;
    digits();
  }
  return t;
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++at;
      continue;
    }
    Token t{c, at, at + 1};
    if (digit(c) || (c == '-' && at + 1 < text.size() && digit(text[at + 1]))) {
      t = number_at(text, at);
    } else if (ir::is_word_start(c)) {
      t.kind = 'w';
      while (t.end < text.size() && ir::is_word_char(text[t.end])) ++t.end;
    } else if (c == '"') {
      t.kind = 's';
      while (t.end < text.size() && text[t.end] != '"') t.end += text[t.end] == '\\' ? 2 : 1;
      t.end = std::min(t.end + 1, text.size());
    }
    tokens.push_back(t);
    at = t.end;
  }
  return tokens;
}

}  // namespace maco::proofs
