#include "compiler/frontend/cuda/clang_layout.h"

#include <clang/Basic/LangOptions.h>
#include <clang/Format/Format.h>
#include <clang/Lex/Lexer.h>
#include <clang/Tooling/Core/Replacement.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/frontend/cuda/clang_format.h"  // kStyle: the text of .clang-format

namespace maco::frontend::cuda {

namespace tok = clang::tok;
using clang::LangOptions;
using clang::Lexer;
using clang::SourceLocation;
using clang::Token;

namespace {

// The formatter's time grows faster than the length of the text between two of ';', '{' and '}',
// and its stack with nested brackets.
constexpr size_t kMostBytes = 1 << 20, kMostOfStatement = 4096, kMostBrackets = 64;

struct Word {
  std::string text;
  bool begins_directive = false;
  bool operator==(const Word& other) const {
    return text == other.text && begins_directive == other.begins_directive;
  }
};

// The tokens without comments; nothing if the text isn't suitable for the formatter.
std::optional<std::vector<Word>> words_of(const std::string& code) {
  LangOptions options;
  options.CPlusPlus = options.CPlusPlus20 = options.CUDA = options.LineComment = true;
  Lexer lexer(SourceLocation(), options, code.data(), code.data(), code.data() + code.size());
  std::vector<Word> words;
  size_t statement = 0, brackets = 0;
  for (Token token;;) {
    lexer.LexFromRawLexer(token);
    if (token.is(tok::eof)) return words;
    const size_t end = lexer.getBufferLocation() - code.data();
    words.push_back({code.substr(end - token.getLength(), token.getLength()),
                     token.is(tok::hash) && token.isAtStartOfLine()});
    statement =
        token.isOneOf(tok::semi, tok::l_brace, tok::r_brace) ? 0 : statement + token.getLength();
    if (token.isOneOf(tok::l_paren, tok::l_brace, tok::l_square)) ++brackets;
    if (token.isOneOf(tok::r_paren, tok::r_brace, tok::r_square) && brackets > 0) --brackets;
    if (statement > kMostOfStatement || brackets > kMostBrackets) return std::nullopt;
  }
}

}  // namespace

std::string laid_out(const std::string& code) {
  if (code.size() > kMostBytes) return code;
  const auto before = words_of(code);
  if (!before) return code;
  auto style = clang::format::getGoogleStyle(clang::format::FormatStyle::LK_Cpp);
  if (clang::format::parseConfiguration(kStyle, &style)) return code;
  style.SortIncludes = {};
  const auto changes = clang::format::reformat(
      style, code, {clang::tooling::Range(0, static_cast<unsigned>(code.size()))});
  auto text = clang::tooling::applyAllReplacements(code, changes);
  if (!text) {
    llvm::consumeError(text.takeError());
    return code;
  }
  const auto after = words_of(*text);
  return after && *before == *after ? *text : code;
}

}  // namespace maco::frontend::cuda
