// json_parse.cpp: JSON text to Raw.
//
// nlohmann's SAX parser decides what is JSON and decodes it, but doesn't say where values stand.
// A cursor over the same text does. Between two events lie only white space, commas and colons, so
// that skipping those finds each event's token. When the parser gives up, the cursor stands behind
// the last good token, and the stack of open brackets says what may follow there.
//
// A slip with an obvious repair (a comma too many, a comment, ...) is reported and repaired in the
// text, and reading begins again, so that all slips of a file are reported. After any other error,
// what was read so far is checked.

#include <fmt/format.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/frontend/frontend.h"

namespace maco::frontend {

namespace {

// The most nested brackets. A graph needs 6, and two for each nested repeat.
constexpr size_t kMaxDepth = 100;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// A file's text with the repairs of the slips found so far.
struct Repaired {
  std::string text;  // every byte in its place in the file: comments are blank, quotes double
  std::map<size_t, std::string> inserted;  // before the byte at the key
  std::set<size_t> removed;                // surplus commas
  int count = 0;

  /// The text that the parser reads.
  std::string json() const {
    std::string s;
    size_t at = 0;
    const auto copy_to = [&](size_t end) {
      for (; at < end; ++at) s += removed.count(at) > 0 ? ' ' : text[at];
    };
    for (const auto& [place, what] : inserted) {
      copy_to(place);
      s += what;
    }
    copy_to(text.size());
    return s;
  }
  /// The place in the file of the parser's byte `position`.
  size_t place_of(size_t position) const {
    size_t before = 0;
    for (const auto& [place, what] : inserted)
      if (place + before < position) before += what.size();
    return position - std::min(position, before);
  }
};

class TreeBuilder {
 public:
  TreeBuilder(int32_t file, ir::Diagnostics& diagnostics, Repaired& repaired)
      : file_(file), diagnostics_(diagnostics), text_(repaired.text), repaired_(repaired) {
    if (text_.substr(0, 3) == "\xef\xbb\xbf") pos_ = 3;
  }

  bool null() { return add(Raw::Kind::Null) != nullptr; }
  bool boolean(bool value) {
    Raw* raw = add(Raw::Kind::Bool);
    raw->boolean = value;
    return true;
  }
  bool number_integer(int64_t value) {
    Raw* raw = add(Raw::Kind::Int);
    raw->integer = value;
    return true;
  }
  bool number_unsigned(uint64_t value) {
    Raw* raw = add(Raw::Kind::Int);
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return too_large(*raw);
    raw->integer = static_cast<int64_t>(value);
    return true;
  }
  bool number_float(double value, const std::string& literal) {
    Raw* raw = add(Raw::Kind::Float);
    if (literal.find_first_of(".eE") == std::string::npos) return too_large(*raw);
    raw->number = value;
    return true;
  }
  bool string(std::string& value) {
    Raw* raw = add(Raw::Kind::String);
    raw->text = std::move(value);
    raw->text_column_shift = 1;
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Raw::Kind::Map); }
  bool start_array(size_t) { return open(Raw::Kind::List); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    const ir::Loc loc = take_token();
    stack_.back()->map.push_back({std::move(value), loc, {}});
    last_ = Last::Key;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
    explain(repaired_.place_of(position), e.what());
    return false;
  }

  Raw& root() { return root_; }
  /// The tree without what was open when the parser gave up. It has those tensors and ops, and
  /// those other keys, that were complete.
  Raw& complete_part() {
    if (stack_.empty()) return root_;
    const auto drop_last = [](Raw& raw) {
      if (raw.kind == Raw::Kind::Map)
        raw.map.pop_back();
      else
        raw.list.pop_back();
    };
    const bool last_is_broken = last_ == Last::Key || broken_value_;
    const bool members = stack_.size() > 1 && root_.kind == Raw::Kind::Map &&
                         (root_.map.back().key == "tensors" || root_.map.back().key == "ops");
    if (members) {
      if (stack_.size() > 2 || last_is_broken) drop_last(*stack_[1]);
    } else if (stack_.size() > 1 || last_is_broken) {
      drop_last(root_);
    }
    return root_;
  }

 private:
  enum class Last : uint8_t { Nothing, Open, Key, Value };

  // --- the cursor ---

  bool at_end() const { return pos_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[pos_]; }
  void step() {
    if (text_[pos_++] == '\n') {
      ++line_;
      line_start_ = pos_;
    }
  }
  void skip_space() {
    while (!at_end() && is_space(peek())) step();
  }
  ir::Loc here(size_t length) const {
    return {file_, line_, static_cast<int32_t>(pos_ - line_start_) + 1,
            static_cast<int32_t>(std::max<size_t>(length, 1)), -1};
  }

  size_t digits_end(size_t i) const {
    while (i < text_.size() && is_digit(text_[i])) ++i;
    return i;
  }
  /// Where the longest JSON number that begins at pos_ ends; pos_ if there is none.
  size_t number_end() const {
    size_t i = pos_;
    const auto at = [&](size_t k) { return k < text_.size() ? text_[k] : '\0'; };
    if (at(i) == '-') ++i;
    if (!is_digit(at(i))) return pos_;
    i = at(i) == '0' ? i + 1 : digits_end(i);
    if (at(i) == '.' && is_digit(at(i + 1))) i = digits_end(i + 1);
    if (at(i) == 'e' || at(i) == 'E') {
      const size_t sign = at(i + 1) == '+' || at(i + 1) == '-' ? 1 : 0;
      if (is_digit(at(i + 1 + sign))) i = digits_end(i + 1 + sign);
    }
    return i;
  }
  /// One past the token that begins at pos_.
  size_t token_end() const {
    if (at_end()) return pos_;
    const char c = peek();
    if (c == '"') {
      for (size_t i = pos_ + 1; i < text_.size() && text_[i] != '\n'; ++i) {
        if (text_[i] == '\\')
          ++i;
        else if (text_[i] == '"')
          return i + 1;
      }
      return std::min(text_.find('\n', pos_), text_.size());
    }
    if (c == '-' || is_digit(c)) return std::max(number_end(), pos_ + 1);
    size_t i = pos_;
    while (i < text_.size() && is_word(text_[i])) ++i;
    return std::max(i, pos_ + 1);
  }
  /// Moves past the next token; returns its place.
  ir::Loc take_token() {
    while (!at_end() && (is_space(peek()) || peek() == ',' || peek() == ':')) step();
    const size_t end = token_end();
    const ir::Loc loc = here(end - pos_);
    while (pos_ < end) step();
    return loc;
  }

  // --- the tree ---

  Raw* add(Raw::Kind kind) {
    Raw* raw = &root_;
    if (!stack_.empty()) {
      Raw* parent = stack_.back();
      raw =
          parent->kind == Raw::Kind::Map ? &parent->map.back().value : &parent->list.emplace_back();
    }
    raw->kind = kind;
    raw->loc = take_token();
    last_ = Last::Value;
    return raw;
  }
  bool open(Raw::Kind kind) {
    Raw* raw = add(kind);
    if (stack_.size() >= kMaxDepth) {
      diagnostics_.error(raw->loc, fmt::format("more than {} nested brackets", kMaxDepth));
      return false;
    }
    stack_.push_back(raw);
    last_ = Last::Open;
    return true;
  }
  bool close() {
    take_token();
    stack_.pop_back();
    last_ = Last::Value;
    return true;
  }

  // --- errors ---

  bool too_large(const Raw& raw) {
    diagnostics_.error(raw.loc, "the integer does not fit in 64 bits");
    broken_value_ = true;
    return false;
  }

  std::string found() const {
    if (at_end()) return "the end of the file";
    const char c = peek();
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      return fmt::format("the byte 0x{:02x}", static_cast<unsigned char>(c));
    if (c == '\'') return "a single quote";
    std::string token(text_.substr(pos_, token_end() - pos_));
    if (token.size() > 24) token = token.substr(0, 20) + "...";
    return c == '"' ? token : fmt::format("'{}'", token);
  }

  /// At the end of the text the place is behind the last character that isn't white space.
  void rewind_from_end() {
    size_t end = text_.find_last_not_of(" \t\r\n");
    end = end == std::string_view::npos ? 0 : end + 1;
    const size_t newline = end == 0 ? std::string_view::npos : text_.rfind('\n', end - 1);
    line_ = 1;
    for (size_t i = 0; i < end; ++i) line_ += text_[i] == '\n';
    line_start_ = newline == std::string_view::npos ? 0 : newline + 1;
    pos_ = end;
  }

  void fail(const std::string& message) {
    const bool truncated = at_end();
    const size_t length = token_end() - pos_;
    if (truncated) rewind_from_end();
    diagnostics_.error(here(length), message);
    if (truncated && !stack_.empty()) {
      const Raw& inner = *stack_.back();
      diagnostics_.note(inner.loc, fmt::format("'{}' is opened here and never closed",
                                               inner.kind == Raw::Kind::Map ? '{' : '['));
    }
  }
  void unexpected(std::string_view expected) {
    std::string_view hint;
    if (peek() == '\'') hint = "; strings take double quotes";
    if (peek() == '/' || peek() == '#') hint = "; JSON has no comments";
    fail(fmt::format("expected {}, found {}{}", expected, found(), hint));
    repair_token();
  }

  // --- repairs ---

  void insert(size_t place, const std::string& what) {
    repaired_.inserted[place] += what;
    ++repaired_.count;
  }
  void overwrite(size_t begin, size_t end, char with) {
    for (size_t i = begin; i < end; ++i)
      if (repaired_.text[i] != '\n') repaired_.text[i] = with;
    ++repaired_.count;
  }
  /// Whether `what` was inserted at the cursor, so that the current error stands behind it.
  bool repaired_at(char what) const {
    const auto it = repaired_.inserted.find(pos_);
    return it != repaired_.inserted.end() && it->second.find(what) != std::string::npos;
  }
  /// A comment, or a string in single quotes, at the cursor.
  void repair_token() {
    const std::string_view rest = text_.substr(std::min(pos_, text_.size()));
    const auto line_end = std::min(text_.find('\n', pos_), text_.size());
    if (rest.substr(0, 2) == "/*") {
      const size_t end = text_.find("*/", pos_ + 2);
      if (end != std::string_view::npos) overwrite(pos_, end + 2, ' ');
    } else if (rest.substr(0, 2) == "//" || rest.substr(0, 1) == "#") {
      overwrite(pos_, line_end, ' ');
    } else if (rest.substr(0, 1) == "'") {
      const size_t end = text_.find_first_of("'\"\\\n", pos_ + 1);
      if (end == std::string_view::npos || text_[end] != '\'') return;
      overwrite(pos_, pos_ + 1, '"');
      overwrite(end, end + 1, '"');
    }
  }
  /// Whether a value, or a key, may begin at the cursor.
  bool at_value() const {
    const char c = peek();
    return c == '"' || c == '{' || c == '[' || c == '-' || is_digit(c) ||
           (is_word(c) && is_literal());
  }
  bool is_literal() const {
    const std::string_view word = text_.substr(pos_, token_end() - pos_);
    return word == "true" || word == "false" || word == "null";
  }

  void explain(size_t position, std::string_view what) {
    skip_space();
    const bool in_map = !stack_.empty() && stack_.back()->kind == Raw::Kind::Map;
    const std::string_view close = in_map ? "'}'" : "']'";
    switch (last_) {
      case Last::Nothing:
        if (at_end()) return fail("expected a graph, found nothing");
        return explain_value("'{'", position, what);
      case Last::Key:
        if (!repaired_at(':') && peek() != ':') {
          const bool forgotten = at_value();
          const size_t place = pos_;
          unexpected("':' after the key");
          if (forgotten) insert(place, ":");
          return;
        }
        if (peek() == ':') step();
        skip_space();
        return explain_value("a value", position, what);
      case Last::Open:
        if (in_map) return explain_key("a key in double quotes or '}'", position, what);
        return explain_value("a value or ']'", position, what);
      case Last::Value:
        if (stack_.empty()) return unexpected("the end of the file after the graph");
        if (!repaired_at(',') && peek() != ',') {
          if (pos_ > 0 && text_[pos_ - 1] == '0' && is_digit(peek())) {
            broken_value_ = true;
            return fail("a number may not begin with 0");
          }
          const bool forgotten = in_map ? peek() == '"' : at_value();
          const size_t place = pos_;
          unexpected(fmt::format("',' or {}", close));
          if (forgotten) insert(place, ",");
          return;
        }
        const size_t comma = pos_;
        if (peek() == ',') step();
        skip_space();
        if (peek() == '}' || peek() == ']') {
          fail(fmt::format("expected {} after ',', found '{}'",
                           in_map ? "a key in double quotes" : "a value", peek()));
          if (peek() == (in_map ? '}' : ']')) {
            repaired_.removed.insert(comma);
            ++repaired_.count;
          }
          return;
        }
        return in_map ? explain_key("a key in double quotes", position, what)
                      : explain_value("a value", position, what);
    }
  }
  void explain_key(std::string_view expected, size_t position, std::string_view what) {
    if (peek() == '"') return explain_string(position, what);
    unexpected_word(expected);
  }
  /// Reports a word without quotes that would be a string in quotes.
  void unexpected_word(std::string_view expected) {
    const size_t begin = pos_, end = token_end();
    const bool bare = is_word(peek()) && !is_digit(peek()) && !repaired_at('"');
    unexpected(expected);
    if (!bare) return;
    insert(begin, "\"");
    insert(end, "\"");
  }
  void explain_value(std::string_view expected, size_t position, std::string_view what) {
    if (peek() == '"') return explain_string(position, what);
    if (peek() == '-' || is_digit(peek())) {
      const size_t end = number_end();
      const auto part = [&](size_t i) {
        return i < text_.size() && (text_[i] == '.' || text_[i] == '-' || is_word(text_[i]));
      };
      size_t whole = std::max(end, pos_ + 1);
      while (part(whole)) ++whole;
      const bool large = end == whole;
      diagnostics_.error(here(whole - pos_),
                         large ? "the number is too large" : "the number is malformed");
      return;
    }
    unexpected_word(expected);
  }
  /// Reports an error inside the string at pos_, where the parser has read `position` bytes; its
  /// message ends in the reason.
  void explain_string(size_t position, std::string_view what) {
    std::string_view reason = "the string is malformed";
    if (size_t at = what.find("invalid string: "); at != std::string_view::npos) {
      reason = what.substr(at + 16);
      reason = reason.substr(0, reason.find("; last read"));
    }
    const bool unclosed = reason.find("missing closing quote") != std::string_view::npos ||
                          (position > 0 && position <= text_.size() && text_[position - 1] == '\n');
    if (unclosed) {
      const size_t length = token_end() - pos_;
      return diagnostics_.error(here(length), "the string has no closing '\"' on its line");
    }
    while (position > 0 && !at_end() && pos_ < position - 1) step();
    diagnostics_.error(here(1), fmt::format("in a string: {}", reason));
  }

  int32_t file_;
  ir::Diagnostics& diagnostics_;
  const std::string_view text_;
  Repaired& repaired_;
  size_t pos_ = 0, line_start_ = 0;
  int32_t line_ = 1;
  Raw root_;
  std::vector<Raw*> stack_;  // open maps and lists; a parent doesn't grow while a child is open
  Last last_ = Last::Nothing;
  bool broken_value_ = false;  // whether the last value is no valid JSON number
};

constexpr int kMaxRepairs = 40;

struct Read {
  Raw root;
  bool sound = false;     // without errors
  bool complete = false;  // with errors, but all of them repaired
};

Read read(int32_t file, ir::Diagnostics& diagnostics) {
  Repaired repaired{diagnostics.file_text(file), {}, {}, 0};
  for (;;) {
    const int repairs = repaired.count;
    const std::string json = repaired.json();
    TreeBuilder builder(file, diagnostics, repaired);
    if (nlohmann::json::sax_parse(json.begin(), json.end(), &builder))
      return {std::move(builder.root()), repairs == 0, true};
    if (repaired.count == repairs || repairs >= kMaxRepairs)
      return {std::move(builder.complete_part()), false, false};
  }
}

}  // namespace

std::optional<Raw> parse_json_raw(int32_t file, ir::Diagnostics& diagnostics) {
  Read r = read(file, diagnostics);
  if (!r.sound) return std::nullopt;
  return std::move(r.root);
}

std::optional<ir::Graph> parse_json(int32_t file, ir::Diagnostics& diagnostics,
                                    const std::vector<Raw>& collectives) {
  const Read r = read(file, diagnostics);
  BuildOptions options;
  options.collectives = collectives;
  options.incomplete = !r.complete;
  if (!r.complete && r.root.kind != Raw::Kind::Map) return std::nullopt;
  auto graph = build(r.root, options, diagnostics);
  if (!r.sound) return std::nullopt;
  return graph;
}

}  // namespace maco::frontend
