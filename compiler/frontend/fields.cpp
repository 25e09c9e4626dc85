// fields.cpp: reads small values of the tree, for all parts of the build.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "compiler/frontend/build.h"
#include "compiler/ops/other_names.h"

namespace maco::frontend {

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
  std::string hint = other.empty() ? graph::suggest(c.check, key, allowed)
                                   : fmt::format("; did you mean '{}'?", other);
  mark_meant(c, map, hint);
  return hint;
}

bool is_missing(BuildContext& c, const Raw& map, const std::string& what, const std::string& key,
                ir::Loc loc) {
  if (map.find(key) != nullptr) return false;
  if (c.misspelt.count({map.loc.line, map.loc.column, key}) == 0)
    graph::missing_key(c.check, loc, what, key);
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
    const std::string near = suggest_key(c, map, e.key, allowed);
    graph::unknown_key(c.check, e.key_loc, what, e.key, [&] {
      return near.empty() ? fmt::format("; expected {}", list_words(allowed)) : near;
    });
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
  return graph::wrong_type(c.check, raw.loc, what, expected, describe(raw),
                           kind == Raw::Kind::Bool ? truth_of(raw) : "");
}

const Raw* require(BuildContext& c, const Raw& map, const std::string& what,
                   const std::string& key) {
  return is_missing(c, map, what, key, map.loc) ? nullptr : map.find(key);
}

bool needs_repeat(BuildContext& c, const Raw& raw) {
  if (raw.text.find('{') == std::string::npos || raw.loc.context >= 0) return false;
  c.error(raw.loc, fmt::format("{} needs the variable of a 'repeat', but there is none around it",
                               describe(raw)));
  return true;
}

std::optional<std::string> read_name(BuildContext& c, const Raw& raw, const std::string& what) {
  if (!expect(c, raw, Raw::Kind::String, what, "a string")) return std::nullopt;
  if (needs_repeat(c, raw) || !graph::check_name(c.check, raw.text, raw.loc, what))
    return std::nullopt;
  return raw.text;
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
  if (!expect(c, raw, Raw::Kind::String, what, list_words(words)) ||
      !graph::check_word(c.check, raw.text, words, raw.loc, what))
    return std::nullopt;
  return raw.text;
}

std::optional<int64_t> read_integer(BuildContext& c, const Raw& raw, const std::string& what) {
  if (raw.kind == Raw::Kind::Int) return raw.integer;
  if (raw.kind == Raw::Kind::String) {
    const auto e = read_expr(c, raw, what, ExprUse::Constant);
    if (!e) return std::nullopt;
    return ir::evaluate(*e, [&](std::string_view) { return c.graph.world; }).value;
  }
  graph::wrong_type(c.check, raw.loc, what, "an integer", describe(raw), whole_number(raw));
  return std::nullopt;
}

std::optional<int64_t> read_constant(BuildContext& c, const Raw& raw, const std::string& what,
                                     int64_t lo, int64_t hi) {
  const auto value = read_integer(c, raw, what);
  if (!value || !graph::check_within(c.check, *value, lo, hi, raw.loc, what)) return std::nullopt;
  return value;
}

}  // namespace maco::frontend
