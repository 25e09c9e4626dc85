// A cursor over a text: white space, words, numbers, quoted names, and errors with their place. The
// grammar that derives from it reads characters directly; there is no list of tokens.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ir/diagnostics.h"
#include "ir/expr.h"
#include "ir/program_syntax.h"

namespace maco::ir {

/// Methods that return bool return false after having reported an error. Not copyable: it points
/// into `diagnostics`.
class TextCursor {
 protected:
  /// The number of errors in one text after which the parser stops: a file of another format would
  /// give one a line.
  static constexpr int kMaxErrors = 100;

  TextCursor(int32_t file, Diagnostics& diagnostics)
      : file_(file), diagnostics_(diagnostics), text_(diagnostics.file_text(file)) {
    line_starts_.push_back(0);
    for (size_t at = text_.find('\n'); at != std::string_view::npos; at = text_.find('\n', at + 1))
      line_starts_.push_back(at + 1);
  }
  TextCursor(const TextCursor&) = delete;
  TextCursor& operator=(const TextCursor&) = delete;

  // Characters

  void skip() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (at_ == text_.size()) return;
      } else if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
        return;
      }
    }
  }
  /// The next character that isn't white space, or 0 at the end.
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool at_end() {
    skip();
    return at_ >= text_.size();
  }
  bool accept(char c) {
    if (peek() != c || at_end()) return false;
    ++at_;
    return true;
  }
  bool expect(char c) { return accept(c) || expected(fmt::format("'{}'", c)); }
  /// The word at the cursor, not consumed; "" if there is none.
  std::string_view peek_word() {
    skip();
    if (at_ >= text_.size() || !is_word_start(text_[at_])) return {};
    size_t end = at_ + 1;
    while (end < text_.size() && is_word_char(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  bool accept_word(std::string_view word) {
    if (peek_word() != word) return false;
    at_ += word.size();
    return true;
  }
  /// Consumes `key=`, the start of a field.
  bool accept_key(std::string_view key) {
    if (peek_word() != key) return false;
    const size_t start = at_;
    at_ += key.size();
    if (accept('=')) return true;
    at_ = start;
    return false;
  }

  // Errors

  Loc loc(size_t at, size_t length) const {
    const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), at) - 1;
    return {.file = file_,
            .line = static_cast<int32_t>(line - line_starts_.begin()) + 1,
            .column = static_cast<int32_t>(at - *line) + 1,
            .length = static_cast<int32_t>(std::max<size_t>(length, 1))};
  }
  bool error(size_t at, size_t length, std::string message) {
    if (++errors_ <= kMaxErrors) diagnostics_.error(loc(at, length), std::move(message));
    if (errors_ == kMaxErrors)
      diagnostics_.note(loc(at, length), fmt::format("stopped after {} errors", kMaxErrors));
    return false;
  }
  /// "expected X, found Y" at the cursor.
  bool expected(std::string_view what) {
    if (at_end())
      return error(text_.size(), 1, fmt::format("expected {}, found the end of the text", what));
    std::string_view found = peek_word();
    if (found.empty()) found = text_.substr(at_, 1);
    const auto byte = static_cast<unsigned char>(found[0]);
    if (byte < 0x20 || byte >= 0x7f)
      return error(at_, 1, fmt::format("expected {}, found byte 0x{:02x}", what, byte));
    return error(at_, found.size(), fmt::format("expected {}, found '{}'", what, found));
  }
  // Numbers, names, words

  template <class Int>
  bool number(Int& value, std::string_view what = "a number", int base = 10) {
    skip();
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto [stop, status] = std::from_chars(begin, end, value, base);
    const size_t length = static_cast<size_t>(stop - begin);
    if (status == std::errc::result_out_of_range)
      return error(at_, length, fmt::format("{} is out of range", std::string(begin, stop)));
    if (status != std::errc()) return expected(what);
    at_ += length;
    return true;
  }
  template <class Int>
  bool field(std::string_view key, Int& value) {
    return (accept_key(key) || expected(fmt::format("'{}='", key))) && number(value);
  }
  /// A field that may be absent. Returns false if it is present and wrong.
  template <class Int>
  bool optional_field(std::string_view key, Int& value) {
    return !accept_key(key) || number(value);
  }

  bool quoted(std::string& result) {
    const size_t start = at_++;
    result.clear();
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      char c = text_[at_++];
      if (c == '\\') {
        c = at_ < text_.size() ? text_[at_++] : '\0';
        if (c == 'n') {
          c = '\n';
        } else if (c == 't') {
          c = '\t';
        } else if (c == 'x') {
          unsigned value = 0;
          const char* digits = text_.data() + at_;
          const char* end = digits + std::min<size_t>(2, text_.size() - at_);
          if (std::from_chars(digits, end, value, 16).ptr != digits + 2)
            return error(at_ - 2, 2, "'\\x' is followed by two hexadecimal digits");
          at_ += 2;
          c = static_cast<char>(value);
        } else if (c != '"' && c != '\\') {
          return error(at_ - 2, 2, "unknown escape; known are \\\" \\\\ \\n \\t \\xNN");
        }
      }
      result += c;
    }
    if (at_ >= text_.size() || text_[at_] != '"') return error(start, 1, "unterminated string");
    ++at_;
    return true;
  }
  /// Whether a name (not a reserved word) stands at the cursor.
  bool at_name() {
    if (peek() == '"') return true;
    const std::string_view word = peek_word();
    return !word.empty() && !is_reserved(word);
  }
  bool read_name(std::string& result, std::string_view what = "a name") {
    if (peek() == '"') return quoted(result);
    const std::string_view word = peek_word();
    if (word.empty()) return expected(what);
    if (is_reserved(word))
      return error(at_, word.size(),
                   fmt::format("expected {}, found the reserved word '{}'; as a name it is "
                               "written \"{}\"",
                               what, word, word));
    result = word;
    at_ += word.size();
    return true;
  }
  /// One of the enumerators 0 .. count - 1, by its name().
  template <class Enum>
  bool word_of(Enum& result, size_t count, std::string_view what) {
    const std::string_view word = peek_word();
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      if (word == name(static_cast<Enum>(i))) {
        result = static_cast<Enum>(i);
        at_ += word.size();
        return true;
      }
    }
    if (word.empty()) return expected(what);
    for (size_t i = 0; i < count; ++i) names.emplace_back(name(static_cast<Enum>(i)));
    return error(at_, word.size(),
                 fmt::format("expected {} ({}), found '{}'{}", what, fmt::join(names, ", "), word,
                             did_you_mean(word, names)));
  }
  /// An integer expression. It ends before the first word or sign that can't continue it, at the
  /// latest at the end of the line.
  bool expression(Expr& result) {
    skip();
    const size_t line_end = std::min(text_.find('\n', at_), text_.size());
    std::string_view rest = text_.substr(at_, line_end - at_);
    rest = rest.substr(0, rest.find("//"));
    // Most expressions are plain numbers.
    int64_t constant = 0;
    const auto [stop, status] = std::from_chars(rest.data(), rest.data() + rest.size(), constant);
    if (status == std::errc()) {
      size_t next = static_cast<size_t>(stop - rest.data());
      while (next < rest.size() && rest[next] == ' ') ++next;
      if (next == rest.size() ||
          (next > static_cast<size_t>(stop - rest.data()) && is_word_start(rest[next]))) {
        at_ += static_cast<size_t>(stop - rest.data());
        result = Expr(constant);
        return true;
      }
    }
    size_t end = 0;
    ParseExprResult parsed = parse_expr_prefix(rest, end);
    if (!parsed.expr) return error(at_ + parsed.error_at, parsed.error_length, parsed.error);
    result = std::move(*parsed.expr);
    at_ += end;
    return true;
  }

  int32_t file_;
  Diagnostics& diagnostics_;
  std::string_view text_;
  size_t at_ = 0;
  int errors_ = 0;
  std::vector<size_t> line_starts_;
};

}  // namespace maco::ir
