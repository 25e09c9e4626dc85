// fields.cpp: reads small values of the tree, for all parts of the build.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "compiler/frontend/build.h"
#include "compiler/ops/other_names.h"

namespace maco::frontend {

std::string quoted(std::string_view text) {
  constexpr size_t kMax = 40;
  std::string result = "'";
  for (size_t i = 0; i < std::min(kMax, text.size()); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8 the second set of control characters, U+0080 to U+009F, is C2 and another byte.
    const bool second =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    result += byte < 0x20 || byte == 0x7f || second ? '?' : text[i];
    i += second ? 1 : 0;
  }
  return result + (text.size() > kMax ? "...'" : "'");
}

std::string describe(const Raw& raw) {
  switch (raw.kind) {
    case Raw::Kind::Null: return "null";
    case Raw::Kind::Bool: return raw.boolean ? "true" : "false";
    case Raw::Kind::Int: return fmt::format("the integer {}", raw.integer);
    case Raw::Kind::Float: return fmt::format("the number {}", raw.number);
    case Raw::Kind::String: return quoted(raw.text);
    case Raw::Kind::List: return raw.list.empty() ? "an empty list" : "a list";
    case Raw::Kind::Map: return "a map of keys";
  }
  return "";
}

std::string whole_number(const Raw& raw) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const bool whole = raw.kind == Raw::Kind::Float && raw.number == std::floor(raw.number) &&
                     std::abs(raw.number) <= kExact;
  return whole ? fmt::format("; write {}", static_cast<int64_t>(raw.number)) : "";
}

std::string list_words(const std::vector<std::string>& words, std::string_view last) {
  std::string result;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) result += i + 1 == words.size() ? fmt::format(" {} ", last) : ", ";
    result += "'" + words[i] + "'";
  }
  return result;
}

std::vector<std::string> words_of_dtypes() {
  std::vector<std::string> words;
  for (ir::DType t : ir::kAllDTypes) words.emplace_back(ir::name(t));
  return words;
}

std::string suggest(BuildContext& c, std::string_view word,
                    const std::vector<std::string>& candidates) {
  constexpr size_t kBudget = 500'000;
  c.compared += candidates.size();
  return c.compared > kBudget ? "" : ops::did_you_mean(word, candidates);
}

void mark_meant(BuildContext& c, const Raw& map, const std::string& hint) {
  const std::string asks = "; did you mean '";
  if (hint.compare(0, asks.size(), asks) == 0)
    c.misspelt.emplace(map.loc.line, map.loc.column,
                       hint.substr(asks.size(), hint.rfind('\'') - asks.size()));
}

std::string suggest_key(BuildContext& c, const Raw& map, const std::string& key,
                        const std::vector<std::string>& allowed) {
  // Only keys that aren't present are candidates for another project's name.
  std::vector<std::string> open;
  for (const std::string& name : allowed)
    if (map.find(name) == nullptr) open.push_back(name);
  const std::string other = ops::other_name(key, open);
  std::string hint =
      other.empty() ? suggest(c, key, allowed) : fmt::format("; did you mean '{}'?", other);
  mark_meant(c, map, hint);
  return hint;
}

bool is_missing(BuildContext& c, const Raw& map, const std::string& what, const std::string& key,
                ir::Loc loc) {
  if (map.find(key) != nullptr) return false;
  if (c.misspelt.count({map.loc.line, map.loc.column, key}) == 0)
    c.error(loc, fmt::format("{} has no '{}'", what, key));
  return true;
}

void check_duplicate_keys(BuildContext& c, const Raw& map, const std::string& what) {
  std::map<std::string_view, ir::Loc> first;
  for (const Raw::Entry& e : map.map) {
    const auto [it, fresh] = first.emplace(e.key, e.key_loc);
    if (fresh) continue;
    if (c.error(e.key_loc, fmt::format("{} is given twice in {}", quoted(e.key), what)))
      c.note(it->second, "it is given here first");
  }
}

void check_keys(BuildContext& c, const Raw& map, const std::string& what,
                const std::vector<std::string>& allowed) {
  check_duplicate_keys(c, map, what);
  for (const Raw::Entry& e : map.map) {
    if (std::find(allowed.begin(), allowed.end(), e.key) != allowed.end()) continue;
    std::string hint = suggest_key(c, map, e.key, allowed);
    if (hint.empty()) hint = fmt::format("; expected {}", list_words(allowed));
    c.error(e.key_loc, fmt::format("unknown key {} in {}{}", quoted(e.key), what, hint));
  }
}

namespace {

/// "; did you mean 'true'?" for other languages' spellings of it.
std::string truth_of(const Raw& raw) {
  std::string text = raw.text;
  for (char& ch : text) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
  const bool one = raw.kind == Raw::Kind::Int && raw.integer == 1;
  const bool zero = raw.kind == Raw::Kind::Int && raw.integer == 0;
  if (one || text == "true" || text == "yes" || text == "on") return "; did you mean 'true'?";
  if (zero || text == "false" || text == "no" || text == "off") return "; did you mean 'false'?";
  return "";
}

}  // namespace

bool expect(BuildContext& c, const Raw& raw, Raw::Kind kind, const std::string& what,
            const std::string& expected) {
  if (raw.kind == kind) return true;
  std::string hint;
  if (kind == Raw::Kind::Bool) hint = truth_of(raw);
  c.error(raw.loc, fmt::format("{} must be {}, found {}{}", what, expected, describe(raw), hint));
  return false;
}

const Raw* require(BuildContext& c, const Raw& map, const std::string& what,
                   const std::string& key) {
  return is_missing(c, map, what, key, map.loc) ? nullptr : map.find(key);
}

std::optional<std::string> read_name(BuildContext& c, const Raw& raw, const std::string& what) {
  if (!expect(c, raw, Raw::Kind::String, what, "a string")) return std::nullopt;
  if (ir::is_identifier(raw.text)) return raw.text;
  if (raw.text.find('{') != std::string::npos && raw.loc.context < 0)
    c.error(raw.loc, fmt::format("{} needs the variable of a 'repeat', but there is none around it",
                                 describe(raw)));
  else
    c.error(raw.loc,
            fmt::format("{} must be letters, digits and '_' with dots between parts, found "
                        "{}",
                        what, describe(raw)));
  return std::nullopt;
}

std::vector<std::pair<std::string, ir::Loc>> read_names(BuildContext& c, const Raw& raw,
                                                        const std::string& what, bool or_one,
                                                        bool* complete) {
  std::vector<std::pair<std::string, ir::Loc>> names;
  const int before = c.report.errors();
  bool good = true;
  const auto add = [&](const Raw& item) {
    if (auto name = read_name(c, item, what))
      names.emplace_back(*name, item.loc);
    else
      good = false;
  };
  if (or_one && raw.kind == Raw::Kind::String) {
    add(raw);
  } else if (raw.kind == Raw::Kind::String) {
    c.error(raw.loc, fmt::format("expected a list of names, found {}; write [\"{}\"]",
                                 describe(raw), raw.text));
    good = false;
  } else if (raw.kind != Raw::Kind::List) {
    c.error(raw.loc, fmt::format("expected {}list of names, found {}",
                                 or_one ? "a name or a " : "a ", describe(raw)));
    good = false;
  } else {
    for (const Raw& item : raw.list) add(item);
  }
  if (complete != nullptr) *complete = good && before == c.report.errors();
  return names;
}

std::optional<std::string> read_word(BuildContext& c, const Raw& raw, const std::string& what,
                                     const std::vector<std::string>& words) {
  if (raw.kind == Raw::Kind::String) {
    if (std::find(words.begin(), words.end(), raw.text) != words.end()) return raw.text;
    c.error(raw.loc, fmt::format("{} must be {}, found {}{}", what, list_words(words),
                                 describe(raw), suggest(c, raw.text, words)));
    return std::nullopt;
  }
  c.error(raw.loc, fmt::format("{} must be {}, found {}", what, list_words(words), describe(raw)));
  return std::nullopt;
}

std::optional<int64_t> read_constant(BuildContext& c, const Raw& raw, const std::string& what,
                                     int64_t lo, int64_t hi) {
  std::optional<int64_t> value;
  if (raw.kind == Raw::Kind::Int) {
    value = raw.integer;
  } else if (raw.kind == Raw::Kind::String) {
    const auto e = read_expr(c, raw, what, ExprUse::Constant);
    if (!e) return std::nullopt;
    value = ir::evaluate(*e, [&](std::string_view) { return c.graph.world; }).value;
  } else {
    c.error(raw.loc, fmt::format("{} must be an integer, found {}{}", what, describe(raw),
                                 whole_number(raw)));
    return std::nullopt;
  }
  if (!value) return std::nullopt;
  if (*value < lo || *value > hi) {
    c.error(raw.loc, hi == INT64_MAX
                         ? fmt::format("{} must be at least {}, found {}", what, lo, *value)
                         : fmt::format("{} must be {} to {}, found {}", what, lo, hi, *value));
    return std::nullopt;
  }
  return value;
}

}  // namespace maco::frontend
