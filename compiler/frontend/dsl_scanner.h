// The tokens of the DSL: names, numbers, strings, texts of expressions, and their places. Private
// to the frontend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/raw.h"

namespace maco::frontend {

using ir::Raw;

/// Thrown after a syntax error was reported; the statement loop catches it and continues at the
/// next statement.
struct DslSyntaxError {};

/// A text and its place.
struct Word {
  std::string text;
  ir::Loc loc;
};

/// Reads file `file` from byte `begin` on. Blanks and comments before each token are skipped, and
/// line ends too while a bracket is open. Comments of C are also skipped; the first is reported. A
/// method that can't read the token after which it is named reports that and throws DslSyntaxError.
class DslScanner {
 public:
  DslScanner(int32_t file, ir::Diagnostics& diagnostics, size_t begin = 0);

  /// Reports a byte 0x00, which would read as the end of the file, and throws.
  void refuse_zero_bytes();
  /// The next character after blanks, '\n' at the end of a line (outside brackets), '\0' at the end
  /// of the file.
  char peek();
  /// Consumes `symbol` if it is next.
  bool take(std::string_view symbol);
  void expect(std::string_view symbol, std::string_view what, const std::string& hint = "");
  /// '(', '[' or '{': line ends are blanks up to the matching bracket.
  void open(char bracket);
  void close(char bracket);
  /// Skips empty lines.
  void skip_lines();
  /// Whether a line or the file ends here, or at a ';', which end_statement() reports.
  bool at_line_end() { return peek() == '\n' || peek() == '\0' || peek() == ';'; }
  /// Reports what stands behind a statement in its line. ';' is skipped, and only the first one in
  /// a file reported. `hint` as in expected().
  void end_statement();

  bool at_name();
  /// A name, with `{i}` parts kept as they stand.
  Word name(std::string_view what);
  /// Whether a name followed by `symbol` is next ('=' doesn't match '=='). Consumes nothing.
  bool at_name_before(char symbol);
  /// Whether `word` is next, and then another name.
  bool at_name_before_name(std::string_view word);
  /// Whether a map is next: '{' followed by '}' or by a key and ':'. Otherwise the '{' is that of
  /// '{i + 1}'.
  bool at_map();
  /// A quoted string, with escapes resolved; its place is the opening quote.
  Word quoted();
  /// An integer expression, word or number: its source text. Without `comparisons` it ends before
  /// '<', '=', '&' and so on.
  Word expression(std::string_view what, bool comparisons = true);

  /// "scratch[2:4] @ (rank + 1) % world": chunks of a user's algorithm, as source text.
  Word chunks();

  /// The place of the next token.
  ir::Loc here();
  [[noreturn]] void fail(ir::Loc loc, std::string message);
  /// Reports "expected ..., found ..." at the next token or, if that is on a later line, at the end
  /// of what was read. `hint`: what follows in the message, by default hint_for_symbol.
  [[noreturn]] void expected(std::string_view what, const std::string& hint = "");
  /// The text up to the end of the line or a comment.
  std::string_view rest_of_line();
  /// Continues after a DslSyntaxError: skips to the end of the broken statement.
  void recover();
  /// As recover, but skips to the next `symbol`.
  void recover_at(char symbol);

 private:
  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  void skip();
  size_t name_end(size_t from);
  bool at_foreign_comment(size_t i) const {
    return at(i) == '/' && (at(i + 1) == '/' || at(i + 1) == '*');
  }
  size_t foreign_comment_end(size_t from) const;
  size_t template_end(size_t from);
  size_t number_end(size_t from) const;
  size_t line_end(size_t from) const;
  size_t string_end(size_t from) const;
  Word source(size_t from, size_t to) const;
  ir::Loc loc(size_t from, size_t to) const;
  void advance(size_t to) { at_ = read_ = to; }
  std::string found();

  ir::Diagnostics& diagnostics_;
  int32_t file_;
  std::string_view text_;
  std::vector<size_t> line_starts_;
  size_t at_ = 0;      // next character
  size_t read_ = 0;    // end of the last thing read
  size_t failed_ = 0;  // where the last error stands
  size_t budget_;      // characters that recover() may still read in vain
  std::vector<char> open_;
  bool told_comment_ = false, told_semicolon_ = false;
};

}  // namespace maco::frontend
