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

/// "; write '{i}' ..." for the variable of a repeat, or "".
std::string hint_for_repeat(const BuildContext& c, const std::string& name) {
  if (c.env != nullptr)
    for (const Env::LoopVar& v : c.env->vars)
      if (v.name == name)
        return fmt::format("; write '{{{}}}' for the variable of the repeat", name);
  return "";
}

}  // namespace

std::optional<Expr> read_expr(BuildContext& c, const Raw& raw, const std::string& what, ExprUse use,
                              const Expr* guard) {
  if (raw.kind == Raw::Kind::Int) return Expr(raw.integer);
  if (raw.kind != Raw::Kind::String) {
    graph::wrong_type(c.check, raw.loc, what, graph::kInteger, describe(raw), whole_number(raw));
    return std::nullopt;
  }
  ir::ParseExprResult parsed = ir::parse_expr(raw.text);
  if (!parsed.expr) {
    if (!needs_repeat(c, raw))
      c.error(part_of(raw, parsed.error_at, parsed.error_length),
              fmt::format("in {}: {}", what, parsed.error));
    return std::nullopt;
  }
  const graph::ExprAt at{raw.loc,
                         what,
                         use,
                         guard,
                         [&](const std::string& name) { return place_of(raw, name); },
                         [&](const std::string& name) { return hint_for_repeat(c, name); }};
  if (!graph::check_expr(c.check, *parsed.expr, at)) return std::nullopt;
  return parsed.expr;
}

}  // namespace maco::frontend
