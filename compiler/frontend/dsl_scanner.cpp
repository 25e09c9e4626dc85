#include "compiler/frontend/dsl_scanner.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/frontend/dsl_hints.h"
#include "ir/expr.h"

namespace maco::frontend {

namespace {

constexpr size_t kMaxLinesAhead = 200;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_letter(c) || is_digit(c); }
char counterpart(char bracket) { return bracket == '(' ? ')' : bracket == '[' ? ']' : '}'; }

void append_utf8(std::string& out, uint32_t code) {
  auto byte = [&](uint32_t b) { out += static_cast<char>(static_cast<unsigned char>(b)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | (code >> 6));
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | (code >> 12));
    byte(0x80 | ((code >> 6) & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | (code >> 18));
    byte(0x80 | ((code >> 12) & 0x3f));
    byte(0x80 | ((code >> 6) & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

// How many bytes the first UTF-8 character of `text` has; 0 if there is no valid one.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // Overlong encodings, surrogates, and values behind the last character.
  const uint32_t two = lead << 8 | byte(1);
  const bool none = (two >= 0xe080 && two < 0xe0a0) || (two >= 0xeda0 && two < 0xedc0) ||
                    (two >= 0xf080 && two < 0xf090) || (two >= 0xf490 && two < 0xf4c0);
  return none ? 0 : length;
}

/// The code point of a UTF-8 character of two or three bytes.
uint32_t code_point(std::string_view text) {
  const auto low = [&](size_t i) { return static_cast<unsigned char>(text[i]) & 0x3fU; };
  const auto lead = static_cast<unsigned char>(text[0]);
  if (text.size() == 2) return (lead & 0x1fU) << 6 | low(1);
  return (lead & 0x0fU) << 12 | low(1) << 6 | low(2);
}

}  // namespace

DslScanner::DslScanner(int32_t file, ir::Diagnostics& diagnostics, size_t begin)
    : diagnostics_(diagnostics),
      file_(file),
      text_(diagnostics.file_text(file)),
      line_starts_{0},
      budget_(200 * text_.size() + 1000) {
  for (size_t i = 0; i < text_.size(); ++i)
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  at_ = read_ = begin;
  if (begin == 0 && text_.substr(0, 3) == "\xef\xbb\xbf") at_ = read_ = 3;  // a byte-order mark
}

void DslScanner::refuse_zero_bytes() {
  const size_t at = text_.find('\0');
  if (at != std::string_view::npos)
    fail(loc(at, at + 1), "found the byte 0x00, which no graph has");
}

ir::Loc DslScanner::loc(size_t from, size_t to) const {
  auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), from) - 1;
  ir::Loc result;
  result.file = file_;
  result.line = static_cast<int32_t>(line - line_starts_.begin()) + 1;
  result.column = static_cast<int32_t>(from - *line) + 1;
  result.length = static_cast<int32_t>(std::max<size_t>(1, std::min(to, line_end(from)) - from));
  return result;
}

size_t DslScanner::line_end(size_t from) const {
  return std::min(text_.find('\n', from), text_.size());
}

void DslScanner::skip() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = line_end(at_);
    } else if (at_foreign_comment(at_)) {
      const bool line = at(at_ + 1) == '/';
      if (!told_comment_)
        diagnostics_.error(loc(at_, at_ + 2),
                           fmt::format("found '{}', but comments begin with '#'{}",
                                       text_.substr(at_, 2), line ? ", and '/' floors" : ""));
      told_comment_ = true;
      at_ = foreign_comment_end(at_);
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && !open_.empty())) {
      ++at_;
    } else {
      break;
    }
  }
}

size_t DslScanner::foreign_comment_end(size_t from) const {
  if (at(from + 1) == '/') return line_end(from);
  const size_t close = text_.find("*/", from + 2);
  return close == std::string_view::npos ? line_end(from) : close + 2;
}

void DslScanner::skip_lines() {
  do skip();
  while (at(at_) == '\n' && ++at_ != 0);
}

char DslScanner::peek() {
  skip();
  return at(at_);
}

bool DslScanner::take(std::string_view symbol) {
  skip();
  if (text_.substr(at_, symbol.size()) != symbol) return false;
  advance(at_ + symbol.size());
  return true;
}

void DslScanner::expect(std::string_view symbol, std::string_view what, const std::string& hint) {
  if (!take(symbol)) expected(what, hint);
}

void DslScanner::open(char bracket) {
  expect({&bracket, 1}, fmt::format("'{}'", bracket));
  open_.push_back(bracket);
}

void DslScanner::close(char bracket) {
  if (peek() != bracket) expected(fmt::format("',' or '{}'", bracket));
  open_.pop_back();
  advance(at_ + 1);
}

ir::Loc DslScanner::here() {
  skip();
  size_t end = std::max({name_end(at_), number_end(at_), at_ + 1});
  return loc(at_, end);
}

void DslScanner::fail(ir::Loc where, std::string message) {
  failed_ =
      line_starts_[static_cast<size_t>(where.line) - 1] + static_cast<size_t>(where.column) - 1;
  diagnostics_.error(where, std::move(message));
  throw DslSyntaxError();
}

std::string DslScanner::found() {
  if (at_ >= text_.size()) return "the end of the file";
  if (text_[at_] == '\n') return "the end of the line";
  if (text_[at_] == '"') return "a quoted string";
  for (std::string_view symbol : {"==", "!=", "<=", ">=", "&&", "||", ".."})
    if (text_.substr(at_, 2) == symbol) return fmt::format("'{}'", symbol);
  for (std::string_view blank :
       {"\xc2\xa0", "\xc2\xad", "\xe2\x80\x8b", "\xe2\x80\x8c", "\xe2\x80\x8d", "\xe2\x80\xa8",
        "\xe2\x80\xaf", "\xe3\x80\x80", "\xef\xbb\xbf"})
    if (text_.substr(at_, blank.size()) == blank)
      return fmt::format("the character U+{:04X}, which looks like a blank or like nothing",
                         code_point(blank));
  size_t end = std::max({name_end(at_), number_end(at_), at_ + 1});
  while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;
  return fmt::format("'{}'", text_.substr(at_, end - at_));
}

std::string_view DslScanner::rest_of_line() {
  skip();
  size_t end = at_;
  while (end < line_end(at_) && at(end) != '#' && !at_foreign_comment(end)) ++end;
  while (end > at_ && (at(end - 1) == ' ' || at(end - 1) == '\r' || at(end - 1) == '\t')) --end;
  return text_.substr(at_, end - at_);
}

void DslScanner::end_statement() {
  if (peek() == ';') {
    if (!told_semicolon_) diagnostics_.error(here(), "a statement ends with its line, without ';'");
    told_semicolon_ = true;
    while (take(";")) {
    }
    return;
  }
  if (at_line_end() || peek() == '}') return;
  const bool symbol = std::string_view("+-*/@%").find(peek()) != std::string_view::npos;
  expected("the end of the line",
           symbol && text_.substr(at_, 2) != "->"
               ? "; operators are ops: give the result a name, then write 'z = add(y, ...)'"
               : "");
}

void DslScanner::expected(std::string_view what, const std::string& hint) {
  skip();
  // Inside brackets the next token may be lines away, which would mislead the reader.
  if (!open_.empty() && line_end(read_) < at_)
    fail(loc(read_, read_ + 1), fmt::format("expected {} before the end of the line", what));
  fail(at(at_) == '"' ? loc(at_, string_end(at_)) : here(),
       fmt::format("expected {}, found {}{}", what, found(),
                   hint.empty() ? hint_for_symbol(text_.substr(at_)) : hint));
}

/// The end of a `{...}` part that begins at `from` within a name or integer; `from` if there is
/// none: the braces of a block or a map hold no expression.
size_t DslScanner::template_end(size_t from) {
  if (at(from) != '{') return from;
  const size_t close = text_.find_first_of("{}\n", from + 1);
  if (close == std::string_view::npos || text_[close] != '}') return from;
  const std::string_view inside = text_.substr(from + 1, close - from - 1);
  const ir::ParseExprResult parsed = ir::parse_expr(inside);
  if (parsed.expr) return close + 1;
  const bool block = inside.find_first_of("=:,\"(") != std::string_view::npos ||
                     inside.find_first_not_of(" \t") == std::string_view::npos;
  if (block) return from;
  const size_t where = from + 1 + parsed.error_at;
  fail(loc(where, where + parsed.error_length), parsed.error);
}

size_t DslScanner::name_end(size_t from) {
  if (!is_letter(at(from))) return from;
  size_t i = from + 1;
  while (true) {
    if (is_word(at(i)) || (at(i) == '.' && (is_word(at(i + 1)) || at(i + 1) == '{'))) {
      ++i;
    } else if (const size_t end = template_end(i); end > i) {
      i = end;
    } else {
      return i;
    }
  }
}

size_t DslScanner::number_end(size_t from) const {
  size_t i = from;
  while (is_digit(at(i))) ++i;
  if (i == from) return from;
  if (at(i) == '.' && is_digit(at(i + 1))) {
    ++i;
    while (is_digit(at(i))) ++i;
  }
  if (at(i) == 'e' || at(i) == 'E') {
    const size_t digits = i + (at(i + 1) == '+' || at(i + 1) == '-' ? 2 : 1);
    if (is_digit(at(digits))) {
      i = digits;
      while (is_digit(at(i))) ++i;
    }
  }
  while (is_word(at(i))) ++i;  // '12x' is one error, not two tokens
  return i;
}

bool DslScanner::at_name() {
  skip();
  return is_letter(at(at_));
}

Word DslScanner::name(std::string_view what) {
  skip();
  const size_t end = name_end(at_);
  if (end == at_) expected(what);
  Word word{std::string(text_.substr(at_, end - at_)), loc(at_, end)};
  advance(end);
  return word;
}

bool DslScanner::at_name_before(char symbol) {
  skip();
  const size_t start = at_, end = name_end(at_);
  if (end == start) return false;
  at_ = end;
  skip();
  const bool result = at(at_) == symbol && !(symbol == '=' && at(at_ + 1) == '=');
  at_ = start;
  return result;
}

bool DslScanner::at_name_before_name(std::string_view word) {
  skip();
  const size_t start = at_, end = name_end(at_);
  if (text_.substr(start, end - start) != word) return false;
  at_ = end;
  skip();
  const bool result = is_letter(at(at_));
  at_ = start;
  return result;
}

bool DslScanner::at_map() {
  skip();
  if (at(at_) != '{') return false;
  const size_t start = at_++;
  open_.push_back('{');
  skip();
  const size_t end = at(at_) == '"' ? string_end(at_) : name_end(at_);
  bool result = at(at_) == '}';
  if (end > at_) {
    at_ = end;
    skip();
    result = at(at_) == ':';
  }
  open_.pop_back();
  at_ = start;
  return result;
}

size_t DslScanner::string_end(size_t from) const {
  size_t i = from + 1;
  while (i < text_.size() && text_[i] != '"' && text_[i] != '\n') i += text_[i] == '\\' ? 2 : 1;
  return std::min(at(i) == '"' ? i + 1 : i, text_.size());
}

Word DslScanner::quoted() {
  skip();
  const size_t begin = at_;
  std::string value;
  size_t i = begin + 1;
  auto hex = [&](size_t from) -> uint32_t {
    uint32_t code = 0;
    for (size_t k = from; k < from + 4; ++k) {
      const char c = at(k);
      const int digit = is_digit(c)              ? c - '0'
                        : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                        : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                 : -1;
      if (digit < 0) fail(loc(i, i + 2), "expected four hex digits after '\\u'");
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    return code;
  };
  while (at(i) != '"') {
    if (i >= text_.size() || text_[i] == '\n')
      fail(loc(begin, begin + 1), "the string has no closing '\"' on its line");
    if (text_[i] != '\\') {
      const size_t length = utf8_length(text_.substr(i));
      if (length == 0) fail(loc(i, i + 1), "the string isn't UTF-8");
      value += text_.substr(i, length);
      i += length;
      continue;
    }
    const char c = at(i + 1);
    constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
    if (const size_t which = from.find(c); c != '\0' && which != std::string_view::npos) {
      value += to[which];
      i += 2;
    } else if (c == 'u') {
      uint32_t code = hex(i + 2);
      size_t length = 6;
      if (code >= 0xd800 && code < 0xdc00 && text_.substr(i + 6, 2) == "\\u") {
        const uint32_t low = hex(i + 8);
        if (low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          length = 12;
        }
      }
      if (code >= 0xd800 && code < 0xe000)
        fail(loc(i, i + 6), "half of a surrogate pair is no character");
      append_utf8(value, code);
      i += length;
    } else {
      fail(loc(i, i + 2),
           "unknown escape in a string; known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    }
  }
  Word word{std::move(value), loc(begin, i + 1)};
  advance(i + 1);
  return word;
}

Word DslScanner::expression(std::string_view what, bool comparisons) {
  skip();
  const size_t begin = at_;
  size_t depth = 0;
  while (true) {
    // An operand...
    skip();
    const size_t start = at_;
    if (at(at_) == '-' || (at(at_) == '!' && at(at_ + 1) != '=')) {
      advance(at_ + 1);
      continue;
    }
    if (at(at_) == '(') {
      ++depth;
      open('(');
      continue;
    }
    size_t end = std::max(name_end(at_), number_end(at_));
    for (size_t next = template_end(end); next > end; next = template_end(end)) {
      end = next;
      while (is_word(at(end))) ++end;  // 'x{i}', '{i}0'
    }
    if (end == start) expected(start == begin ? what : "an operand");
    advance(end);
    // ...and the operators after it.
    while (depth > 0 && peek() == ')') {
      --depth;
      close(')');
    }
    skip();
    bool more = false;
    for (std::string_view symbol : {"&&", "||", "==", "!=", "<=", ">=", "<", ">"})
      if ((comparisons || depth > 0) && !more) more = take(symbol);
    for (std::string_view symbol : {"+", "-", "*", "/", "%"})
      if (!more) more = take(symbol);
    if (more) continue;
    if (depth > 0) expected("an operator or ')'");
    break;
  }
  return source(begin, read_);
}

Word DslScanner::source(size_t from, size_t to) const {
  Word word{std::string(text_.substr(from, to - from)), loc(from, to)};
  // An expression over several lines keeps its columns; comments and line ends become blanks.
  bool comment = false;
  for (char& c : word.text) {
    const size_t i = static_cast<size_t>(&c - word.text.data());
    comment = (comment || c == '#' || word.text.compare(i, 2, "//") == 0) && c != '\n';
    if (comment || c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return word;
}

Word DslScanner::chunks() {
  skip();
  const size_t begin = at_;
  const Word buffer = name("'input', 'output' or 'scratch'");
  if (peek() != '[') expected(fmt::format("'[' and a chunk after '{}'", buffer.text));
  open('[');
  expression("the number of a chunk");
  if (take(":")) expression("the end of the chunks");
  close(']');
  if (take("@")) expression("a rank after '@'", false);
  return source(begin, read_);
}

void DslScanner::recover() {
  // If the open brackets are closed somewhere ahead, the statement ends there. If one is never
  // closed, the statement ends with the line, as its intended end is unknown. The search ahead is
  // limited, for files in which nothing is closed.
  std::vector<char> open = open_;
  open_.clear();
  const size_t begin = std::max(at_, failed_);
  size_t i = begin, lines = 0;
  const size_t most_lines = open.empty() ? text_.size() : kMaxLinesAhead;
  bool lost = false;
  for (; i < text_.size(); ++i) {
    const char c = text_[i];
    lost = i - begin > budget_ || (c == '\n' && ++lines > most_lines);
    if (lost) break;
    if (c == '#') {
      i = line_end(i) - 1;
    } else if (at_foreign_comment(i)) {
      i = foreign_comment_end(i) - 1;
    } else if (c == '"') {
      i = string_end(i) - 1;
    } else if (c == '(' || c == '[' || c == '{') {
      open.push_back(c);
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() && c == '}') break;
      if (open.empty()) continue;
      lost = counterpart(open.back()) != c;
      if (lost) break;
      open.pop_back();
    } else if (c == '\n' && open.empty()) {
      break;
    }
  }
  if (lost || !open.empty()) {
    budget_ -= std::min(budget_, i - begin);
    i = line_end(failed_);
  }
  advance(i);
}

void DslScanner::recover_at(char symbol) {
  open_.clear();
  advance(std::min(text_.find(symbol, failed_), text_.size()));
}

}  // namespace maco::frontend
