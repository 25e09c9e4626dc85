// check_values.cpp: checks what all parts of a graph have: names, integers, words, keys,
// expressions.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/check_parts.h"
#include "compiler/ops/other_names.h"

namespace maco::graph {

std::string axis_of(size_t axis, const std::string& tensor) {
  return fmt::format("axis {} of {}", axis, tensor);
}

std::string entry_of(size_t i, const std::string& what) {
  return fmt::format("entry {} of {}", i, what);
}

std::vector<std::string> words_of_dtypes() {
  std::vector<std::string> words;
  for (const ir::DType t : ir::kAllDTypes) words.emplace_back(ir::name(t));
  return words;
}

std::string quoted(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string result = "'";
  for (size_t i = 0; i < std::min(kMost, text.size()); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // In UTF-8 the second set of control characters, U+0080 to U+009F, is C2 and another byte.
    const bool second =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    result += byte < 0x20 || byte == 0x7f || second ? '?' : text[i];
    i += second ? 1 : 0;
  }
  return result + (text.size() > kMost ? "...'" : "'");
}

std::string list_words(const std::vector<std::string>& words, std::string_view last) {
  std::string result;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) result += i + 1 == words.size() ? fmt::format(" {} ", last) : ", ";
    result += "'" + words[i] + "'";
  }
  return result;
}

std::string suggest(Check& c, std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kMost = 500'000;
  c.compared += candidates.size();
  return c.compared > kMost ? "" : ops::did_you_mean(word, candidates);
}

bool check_name(Check& c, const std::string& name, ir::Loc loc, const std::string& what) {
  if (ir::is_identifier(name)) return true;
  c.error(loc, fmt::format("{} must be letters, digits and '_' with dots between parts, found {}",
                           what, quoted(name)));
  return false;
}

bool declare(Check& c, Places& known, const std::string& what, const std::string& name,
             ir::Loc loc) {
  const auto [first, fresh] = known.emplace(name, loc);
  if (!fresh && c.error(loc, fmt::format("{} '{}' is declared twice", what, name)))
    c.note(first->second, fmt::format("'{}' is declared here first", name));
  return fresh;
}

bool give_name(Check& c, Places& known, const std::string& what, const std::string& name,
               ir::Loc loc) {
  const auto [first, fresh] = known.emplace(name, loc);
  if (!fresh && c.error(loc, fmt::format("two {} are called '{}'", what, name)))
    c.note(first->second, "the first is here");
  return fresh;
}

bool check_within(Check& c, int64_t value, int64_t lo, int64_t hi, ir::Loc loc,
                  const std::string& what) {
  if (value >= lo && value <= hi) return true;
  c.error(loc, hi == INT64_MAX ? fmt::format("{} must be at least {}, found {}", what, lo, value)
                               : fmt::format("{} must be {} to {}, found {}", what, lo, hi, value));
  return false;
}

bool check_word(Check& c, const std::string& word, const std::vector<std::string>& words,
                ir::Loc loc, const std::string& what) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return true;
  return wrong_type(c, loc, what, list_words(words), quoted(word), suggest(c, word, words));
}

bool wrong_type(Check& c, ir::Loc loc, const std::string& what, const std::string& expected,
                const std::string& found, const std::string& hint) {
  c.error(loc, fmt::format("{} must be {}, found {}{}", what, expected, found, hint));
  return false;
}

bool missing_key(Check& c, ir::Loc loc, const std::string& what, const std::string& key) {
  c.error(loc, fmt::format("{} has no '{}'", what, key));
  return false;
}

bool unknown_key(Check& c, ir::Loc loc, const std::string& what, const std::string& key,
                 const Report::Hint& hint) {
  c.error(loc, fmt::format("unknown key {} in {}", quoted(key), what), hint);
  return false;
}

namespace {

/// What an unknown name of an expression may be.
std::string hint_for_variable(Check& c, const std::string& name, const ExprAt& at) {
  if (at.hint)
    if (std::string hint = at.hint(name); !hint.empty()) return hint;
  std::vector<std::string> names;
  for (const auto& [variable, v] : c.variables)
    if (allowed(at.use, v.kind)) names.push_back(variable);
  const std::string near = suggest(c, name, names);
  return near.empty() && !names.empty() ? fmt::format("; expected {}", list_words(names)) : near;
}

}  // namespace

bool check_expr(Check& c, const ir::Expr& e, const ExprAt& at) {
  bool good = true;
  for (const std::string& name : e.vars()) {
    const auto found = c.variables.find(name);
    if (found != c.variables.end() && allowed(at.use, found->second.kind)) continue;
    good = false;
    if (found == c.variables.end() && c.incomplete) continue;
    const ir::Loc loc = at.place ? at.place(name) : at.loc;
    if (found != c.variables.end())
      c.error(loc, why_not(at.use, name, found->second.kind, at.what));
    else if (c.tensors.count(name) > 0)
      c.error(loc, fmt::format("'{}' is a tensor and can't stand in an expression", name));
    else
      c.error(loc, fmt::format("unknown name {} in {}", quoted(name), at.what),
              [&] { return hint_for_variable(c, name, at); });
  }
  if (!good) return false;
  const std::string why = why_no_value(c.variables, e, at.guard);
  if (!why.empty()) c.error(at.loc, why);
  return why.empty();
}

}  // namespace maco::graph
