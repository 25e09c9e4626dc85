// build_expr.cpp: expressions of the tree: their syntax, the names that they may use, and whether
// they have a value on every rank.

#include <fmt/format.h>

#include <functional>

#include "compiler/frontend/build.h"

namespace maco::frontend {

using ir::Expr;

namespace {

/// The place of the part of `raw` that begins `at` bytes into its text, if the file has the text as
/// it is.
ir::Loc part_of(const Raw& raw, size_t at, size_t length) {
  ir::Loc loc = raw.loc;
  const auto size = static_cast<int32_t>(raw.text.size());
  if (loc.length != size + 2 * raw.text_column_shift) return loc;
  loc.column += raw.text_column_shift + static_cast<int32_t>(at);
  loc.length = static_cast<int32_t>(std::max<size_t>(length, 1));
  return loc;
}

/// The place of `name` as a whole word in the text of `raw`.
ir::Loc place_of(const Raw& raw, const std::string& name) {
  const auto word = [](char ch) {
    return ch == '_' || ch == '.' || std::isalnum(static_cast<unsigned char>(ch)) != 0;
  };
  for (size_t at = raw.text.find(name); at != std::string::npos; at = raw.text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !word(raw.text[at - 1])) && (end == raw.text.size() || !word(raw.text[end])))
      return part_of(raw, at, name.size());
  }
  return raw.loc;
}

std::vector<std::string> names_for(const BuildContext& c, ExprUse use) {
  std::vector<std::string> names;
  for (const auto& [name, v] : c.variables)
    if (allowed(use, v.kind)) names.push_back(name);
  return names;
}

bool check_names(BuildContext& c, const Raw& raw, const Expr& e, const std::string& what,
                 ExprUse use) {
  bool good = true;
  for (const std::string& name : e.vars()) {
    const auto it = c.variables.find(name);
    if (it != c.variables.end() && allowed(use, it->second.kind)) continue;
    good = false;
    if (it == c.variables.end() && c.options.incomplete) continue;
    if (it != c.variables.end()) {
      c.error(place_of(raw, name), graph::why_not(use, name, it->second.kind, what));
    } else if (c.tensor_of.count(name) > 0) {
      c.error(place_of(raw, name),
              fmt::format("'{}' is a tensor and can't stand in an expression", name));
    } else {
      std::string hint;
      if (c.env != nullptr)
        for (const Env::LoopVar& v : c.env->vars)
          if (v.name == name)
            hint = fmt::format("; write '{{{}}}' for the variable of the repeat", name);
      if (hint.empty()) hint = suggest(c, name, names_for(c, use));
      if (hint.empty() && !c.variables.empty())
        hint = fmt::format("; {} may use {}", what, list_words(names_for(c, use)));
      c.error(place_of(raw, name), fmt::format("unknown name '{}'{}", name, hint));
    }
  }
  return good;
}

}  // namespace

std::optional<Expr> read_expr(BuildContext& c, const Raw& raw, const std::string& what, ExprUse use,
                              const Expr* guard) {
  if (raw.kind == Raw::Kind::Int) return Expr(raw.integer);
  if (raw.kind != Raw::Kind::String) {
    c.error(raw.loc, fmt::format("{} must be an integer or an expression, found {}{}", what,
                                 describe(raw), whole_number(raw)));
    return std::nullopt;
  }
  ir::ParseExprResult parsed = ir::parse_expr(raw.text);
  if (!parsed.expr) {
    if (raw.text.find('{') != std::string::npos && raw.loc.context < 0)
      c.error(raw.loc,
              fmt::format("{} needs the variable of a 'repeat', but there is none around it",
                          describe(raw)));
    else
      c.error(part_of(raw, parsed.error_at, parsed.error_length),
              fmt::format("in {}: {}", what, parsed.error));
    return std::nullopt;
  }
  const Expr& e = *parsed.expr;
  if (!check_names(c, raw, e, what, use)) return std::nullopt;
  if (!c.world_sound) return parsed.expr;
  if (const std::string why = graph::why_no_value(c.variables, e, guard); !why.empty()) {
    c.error(raw.loc, why);
    return std::nullopt;
  }
  return parsed.expr;
}

bool check_positive(BuildContext& c, const Expr& e, ir::Loc loc, const std::string& what) {
  const std::string why = graph::why_not_positive(c.variables, e, what);
  if (!why.empty()) c.error(loc, why);
  return why.empty();
}

}  // namespace maco::frontend
