#include "tests/proofs/grammar_lines.h"

#include <string_view>

#include "tests/proofs/grammar_tokens.h"

namespace maco::proofs {
namespace {

/// Reads one line. A function that returns false has met something else than the grammar has there.
class Reader {
 public:
  explicit Reader(Line& line) : line_(line), tokens_(tokens_of(line.text)) {}

  void run() {
    if (tokens_.empty()) return;
    line_.entity = text(0);
    if (!entity()) rest();
    if (i_ < tokens_.size()) rest();
  }

 private:
  // Tokens

  std::string text(size_t i) const {
    return i < tokens_.size()
               ? line_.text.substr(tokens_[i].begin, tokens_[i].end - tokens_[i].begin)
               : "";
  }
  char kind(size_t ahead = 0) const {
    return i_ + ahead < tokens_.size() ? tokens_[i_ + ahead].kind : '\0';
  }
  bool at(std::string_view word) const { return kind() == 'w' && text(i_) == word; }
  bool at_key(std::string_view word) const { return at(word) && kind(1) == '='; }
  size_t begin() const { return i_ < tokens_.size() ? tokens_[i_].begin : line_.text.size(); }
  size_t end() const { return i_ == 0 ? 0 : tokens_[i_ - 1].end; }  // of what was read
  bool accept(char c) { return kind() == c && ++i_; }
  bool word(std::string_view w) { return at(w) && ++i_; }
  void field(size_t from, std::string type, std::string key) {
    line_.fields.push_back({from, end(), std::move(type), std::move(key)});
  }

  // Fields

  bool one(const char* kinds, const std::string& type, const std::string& key) {
    const size_t from = begin();
    if (kind() == 0 || std::string_view(kinds).find(kind()) == std::string_view::npos) return false;
    ++i_;
    field(from, type, key);
    return true;
  }
  bool number(const std::string& key) { return one("n", "number", key); }
  bool of_class(const std::string& words) { return one("w", "word " + words, words); }
  bool name(const std::string& what) { return one("ws", "name " + what, what); }
  bool reference(const std::string& what) {
    if (kind() != '#') return name(what);
    const size_t from = begin();
    if (kind(1) != 'n') return false;
    i_ += 2;
    field(from, "name " + what, what);
    return true;
  }
  bool value_reference() {
    const size_t from = begin();
    if (kind() != '%' || kind(1) != 'n') return false;
    i_ += 2;
    field(from, "value reference", "value reference");
    return true;
  }
  /// Anything up to the token for which `stop` holds; its numbers and words are fields too.
  template <class Stop>
  bool expression(Stop stop) {
    const size_t from = begin(), first = i_;
    while (kind() != 0 && !stop()) generic("expression");
    if (i_ == first) return false;
    field(from, "expression", "expression");
    return true;
  }
  /// Something that may be left out, here.
  template <class Read>
  bool option(const std::string& type, bool present, Read read) {
    const size_t from = end();
    if (present && !read()) return false;
    field(from, "option " + type, type);
    return true;
  }
  /// `KEY=...`
  template <class Read>
  bool keyed(const std::string& owner, const std::string& key, Read read) {
    return option(owner + " " + key, at_key(key), [&] {
      i_ += 2;
      return read();
    });
  }
  bool keyed_number(const std::string& owner, const std::string& key) {
    return keyed(owner, key, [&] { return number(owner + " " + key); });
  }
  bool flag(const std::string& owner, const std::string& key) {
    return option(owner + " " + key, at(key), [&] { return word(key); });
  }
  /// Items, as many as there are. Its index in the line's lists, -1 if an item is wrong.
  template <class Read>
  int list(const std::string& type, const std::string& separator, char between, Read read) {
    const int index = static_cast<int>(line_.lists.size());
    line_.lists.push_back({type, separator, {}, begin(), begin()});
    do {
      const size_t from = begin();
      if (!read()) return -1;
      line_.lists[static_cast<size_t>(index)].items.emplace_back(from, end());
    } while (accept(between));
    line_.lists[static_cast<size_t>(index)].end = end();
    return index;
  }
  void widen(int list, size_t from) {
    line_.lists[static_cast<size_t>(list)].begin = from;
    line_.lists[static_cast<size_t>(list)].end = end();
  }
  /// A token of no known place.
  void generic(const std::string& where) {
    const std::string key = where + " " + std::to_string(i_);
    if (one("n", "number", key) || one("x", "mask", key) || one("f", "float", key) ||
        one("w", "word " + where, key) || one("s", "string " + where, key))
      return;
    ++i_;
  }
  void rest() {
    while (kind() != 0) generic(line_.entity);
  }

  // Entities

  bool entity() {
    const std::string& e = line_.entity;
    ++i_;
    if (e == "program") return header();
    if (e == "uses") {
      for (const char* k :
           {"consumers", "loaders", "signallers", "registers", "spare", "consumer_registers",
            "loader_registers", "head", "scratch", "pages", "page_bytes"})
        if (!keyed_number("uses", k)) return false;
      return true;
    }
    if (e == "limits") {
      for (const char* k : {"sms", "threads", "registers", "shared", "symmetric"})
        if (!keyed_number("limits", k)) return false;
      return true;
    }
    if (e == "roles") return list("role", ", ", ',', [&] { return role(); }) >= 0;
    if (e == "value") return value();
    if (e == "buffer") return buffer();
    if (e == "call") return call();
    if (e == "collective") return collective();
    if (e == "event")
      return name("event") && of_class("kind of event") && keyed_number("event", "count") &&
             keyed("event", "scope", [&] { return of_class("scope"); });
    if (e == "task") return task();
    return false;
  }
  bool header() {
    const auto key = [&](const char* k) { return at_key(k) && (i_ += 2); };
    return name("program") && key("stage") && of_class("stage") && key("world") &&
           number("program world") && key("target") && name("target") &&
           keyed("program", "board", [&] { return name("board"); }) && key("ctas") &&
           number("program ctas") && keyed_number("program", "arena") &&
           keyed_number("program", "symmetric") && accept('{');
  }
  bool role() {
    return of_class("role") && number("role begin") && accept('.') && accept('.') &&
           number("role end") && option("role ops", kind() == '[', [&] {
             ++i_;
             return list("role op", ", ", ',', [&] { return name("op kind"); }) >= 0 && accept(']');
           });
  }
  bool range(const std::string& key) {
    return accept('[') && number(key + " from") && accept(',') && number(key + " to") &&
           accept(']');
  }
  bool value() {
    return accept('%') && number("value index") && accept('=') &&
           expression([&] { return at("in"); }) && word("in") && range("value");
  }
  bool buffer() {
    return name("buffer") && accept(':') && of_class("dtype") && accept('[') &&
           expression([&] { return at("max") || at("x") || kind() == ']'; }) &&
           option("buffer max", at("max"), [&] { return word("max") && number("buffer max"); }) &&
           word("x") && number("buffer columns") && accept(']') && of_class("kind of buffer") &&
           keyed("buffer", "tensor", [&] { return name("tensor"); }) &&
           keyed_number("buffer", "rotation") && flag("buffer", "packets") &&
           keyed_number("buffer", "use") && keyed_number("buffer", "offset");
  }
  bool call() {
    const auto key = [&](const char* k) { return at_key(k) && (i_ += 2); };
    if (!name("call") || !accept('=') || !name("function") || !key("op") || !name("op") ||
        !key("kind") || !name("op kind") ||
        !option("call params", kind() == '{', [&] { return params(); }))
      return false;
    if (!accept('(')) return false;
    if (kind() != ')' && list("operand", ", ", ',', [&] { return reference("buffer"); }) < 0)
      return false;
    return accept(')') &&
           option("call loads", at("loads"),
                  [&] { return listed("load", [&] { return load(); }); }) &&
           option("call moves", at("moves"),
                  [&] { return listed("transfer", [&] { return transfer(); }); });
  }
  /// A word and a list.
  template <class Read>
  bool listed(const std::string& type, Read read) {
    const size_t from = end();
    ++i_;
    const int items = list(type, ", ", ',', read);
    if (items >= 0) widen(items, from);
    return items >= 0;
  }
  bool params() {
    const size_t from = end();
    if (!accept('{')) return false;
    const auto index = line_.lists.size();
    line_.lists.push_back({"param", " ", {}, from, from});
    while (kind() != '}') {
      const size_t begins = begin();
      if (!param()) return false;
      line_.lists[index].items.emplace_back(begins, end());
    }
    if (!accept('}')) return false;
    widen(static_cast<int>(index), from);
    return true;
  }
  bool param() {
    const std::string key = "param " + text(i_);
    if (!name("param") || !accept('=')) return false;
    const size_t from = begin();
    if (!param_value(key)) return false;
    field(from, "param value", key);
    return true;
  }
  bool param_value(const std::string& key) {
    if (word("const")) return number(key);
    if (word("value")) return value_reference();
    if (word("word")) return one("s", "string word", key);
    if (word("table")) {
      if (!accept('[')) return false;
      return accept(']') ||
             (list("table entry", ", ", ',', [&] { return one("xn", "mask", key); }) >= 0 &&
              accept(']'));
    }
    if (word("body")) return body();
    return number(key) || one("f", "float", key) || one("w", "word param", key) ||
           (accept('-') && one("w", "word param", key));
  }
  bool body() {
    if (!accept('(')) return false;
    if (kind() != ')' && list("body operand", ", ", ',',
                              [&] { return of_class("spread") && of_class("dtype"); }) < 0)
      return false;
    if (!accept(')') || kind() != 's') return false;
    // A text in a text; it has neither quotes nor backslashes.
    const Token string = tokens_[i_];
    const size_t length = string.end - string.begin - 2;
    size_t place = 0;
    for (const Token& t : tokens_of(line_.text.substr(string.begin + 1, length))) {
      const char* type = t.kind == 'n'   ? "number"
                         : t.kind == 'f' ? "float"
                         : t.kind == 'w' ? "word body"
                                         : nullptr;
      if (type)
        line_.fields.push_back({string.begin + 1 + t.begin, string.begin + 1 + t.end, type,
                                "body " + std::to_string(place)});
      ++place;
    }
    return one("s", "string body", "body");
  }
  bool load() {
    const auto key = [&](const char* k) { return at_key(k) && (i_ += 2); };
    const size_t from = begin();
    if (!number("load operand") || !key("ring") || !number("load ring") || !key("pages") ||
        !number("load pages") || !key("page_bytes") || !number("load page_bytes") ||
        !of_class("ahead"))
      return false;
    field(from, "load", "load");
    return true;
  }
  bool transfer() {
    const size_t from = begin();
    if (word("reduce")) {
      if (!of_class("reduction")) return false;
    } else if (!word("copy")) {
      return false;
    }
    const auto places = [&](const char* type) {
      return list(type, ", ", ',', [&] { return number("transfer access"); }) >= 0;
    };
    if (!accept('(') || !places("source") || !accept('-') || !accept('>') ||
        !places("destination") || !accept(')'))
      return false;
    field(from, "transfer", "transfer");
    return true;
  }
  bool collective() {
    return name("op") && of_class("kind of collective") &&
           keyed("collective", "in", [&] { return reference("buffer"); }) &&
           keyed("collective", "out", [&] { return reference("buffer"); }) &&
           keyed("collective", "reduce", [&] { return of_class("reduction"); }) &&
           keyed_number("collective", "peer");
  }

  // Tasks

  bool task() {
    if (!name("task") || !name("call") || !accept('#') || !number("task tile") ||
        !of_class("role") || !keyed_number("task", "sm") || !keyed_number("task", "place") ||
        !keyed("task", "ranks", [&] { return one("xn", "mask", "task ranks"); }) ||
        !keyed("task", "priority", [&] { return of_class("priority"); }) ||
        !option("task after", at("after"), [&] {
          const size_t from = end();
          ++i_;
          if (!accept('(')) return false;
          const int calls = list("call", ", ", ',', [&] { return name("call"); });
          if (calls < 0 || !accept(')')) return false;
          widen(calls, from);
          return true;
        }))
      return false;
    const size_t from = end();
    if (!accept(':')) return kind() == 0;
    const auto index = line_.lists.size();
    line_.lists.push_back({"clause", "; ", {}, from, from});
    do {
      const size_t begins = begin(), inner = line_.lists.size();
      if (!clause()) return false;
      field(begins, "clause", "clause");
      line_.lists[index].items.emplace_back(begins, end());
      line_.lists[inner].parent = static_cast<int>(index);
      line_.lists[inner].item = line_.lists[index].items.size() - 1;
    } while (accept(';'));
    widen(static_cast<int>(index), from);
    return true;
  }
  bool clause() {
    if (at("wait") || at("signal")) {
      const std::string type = text(i_);
      ++i_;
      return list(type, ", ", ',', [&] { return edge(type); }) >= 0;
    }
    if (!at("read") && !at("write") && !at("may")) return false;
    of_class("access");
    const auto index = line_.lists.size();
    line_.lists.push_back({"access", " ", {}, begin(), begin()});
    do {
      const size_t from = begin();
      if (!region()) return false;
      line_.lists[index].items.emplace_back(from, end());
    } while (kind() == '#' || kind() == 'w' || kind() == 's');
    line_.lists[index].end = end();
    return true;
  }
  bool edge(const std::string& type) {
    const bool wait = type == "wait";
    const size_t from = begin();
    if (!option(type + " relaxed", at("relaxed"), [&] { return word("relaxed"); }) ||
        !reference("event"))
      return false;
    const std::string preposition = wait ? "from" : "to";
    if (!option(type + " " + preposition, at(preposition),
                [&] { return word(preposition) && ranks(); }))
      return false;
    if (wait && !option("wait lag", at("lag"), [&] { return word("lag") && number("wait lag"); }))
      return false;
    field(from, type, type);
    return true;
  }
  bool ranks() {
    const size_t from = begin();
    if (at("rank") || at("shift")) {
      ++i_;
      if (!accept('(') || !number("rank") || !accept(')')) return false;
    } else if (!word("self") && !word("others") && !word("all")) {
      return false;
    }
    field(from, "ranks", "ranks");
    return true;
  }
  bool region() {
    const size_t from = begin();
    if (!reference("buffer") || !accept('[') || !number("region r0") || !accept(':') ||
        !number("region r1") || !accept(',') || !number("region c0") || !accept(':') ||
        !number("region c1") || !keyed_number("region", "pitch") ||
        !keyed("region", "block",
               [&] {
                 if (!ranks() || !accept('*')) return false;
                 const size_t rows = begin();
                 if (kind() == '%' ? !value_reference() : !number("block rows")) return false;
                 field(rows, "block rows", "block rows");
                 return true;
               }) ||
        !keyed("region", "on", [&] { return ranks(); }) || !accept(']'))
      return false;
    field(from, "region", "region");
    return true;
  }

  Line& line_;
  const std::vector<Token> tokens_;
  size_t i_ = 0;
};

}  // namespace

Line read_line(std::string text) {
  Line line;
  line.text = std::move(text);
  Reader(line).run();
  return line;
}

}  // namespace maco::proofs
