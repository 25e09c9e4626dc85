// build_expr.cpp: expressions of the tree: syntax, which names may stand in them, and whether they
// have a value on every rank.

#include <fmt/format.h>

#include <functional>

#include "compiler/frontend/build.h"

namespace maco::frontend {

using ir::Expr;

namespace {

bool allowed(ExprUse use, Variable::Kind kind) {
  switch (kind) {
    case Variable::Kind::World: return true;
    case Variable::Kind::Rank: return use == ExprUse::Attribute || use == ExprUse::Runtime;
    case Variable::Kind::Dim: return use != ExprUse::Constant;
    case Variable::Kind::Scalar: return use == ExprUse::Runtime || use == ExprUse::Condition;
  }
  return false;
}

std::string why_not(ExprUse use, const std::string& name, Variable::Kind kind,
                    const std::string& what) {
  switch (kind) {
    case Variable::Kind::Rank:
      return fmt::format("'rank' can't stand in {}, which is the same on all ranks", what);
    case Variable::Kind::Dim:
      return fmt::format("dim '{}' can't stand in {}, which is fixed when compiling", name, what);
    case Variable::Kind::Scalar:
      if (use == ExprUse::Shape)
        return fmt::format(
            "scalar '{}' can't stand in a shape; declare a dim for a size that is known at launch",
            name);
      return fmt::format("scalar '{}' can't stand in {}: only run-time attributes take scalars",
                         name, what);
    case Variable::Kind::World: break;
  }
  return "";
}

/// The part of `raw` that begins `at` bytes into its text, if the text stands in the file as it is.
ir::Loc part_of(const Raw& raw, size_t at, size_t length) {
  ir::Loc loc = raw.loc;
  const auto size = static_cast<int32_t>(raw.text.size());
  if (loc.length != size + 2 * raw.text_column_shift) return loc;
  loc.column += raw.text_column_shift + static_cast<int32_t>(at);
  loc.length = static_cast<int32_t>(std::max<size_t>(length, 1));
  return loc;
}

/// Where `name` stands as a whole word in the text of `raw`.
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

std::vector<std::string> names_for(const Context& c, ExprUse use) {
  std::vector<std::string> names;
  for (const auto& [name, v] : c.variables)
    if (allowed(use, v.kind)) names.push_back(name);
  return names;
}

bool check_names(Context& c, const Raw& raw, const Expr& e, const std::string& what, ExprUse use) {
  bool good = true;
  for (const std::string& name : e.vars()) {
    const auto it = c.variables.find(name);
    if (it != c.variables.end() && allowed(use, it->second.kind)) continue;
    good = false;
    if (it == c.variables.end() && c.options.incomplete) continue;
    if (it != c.variables.end()) {
      c.error(place_of(raw, name), why_not(use, name, it->second.kind, what));
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

/// One assignment of numbers to the names that an expression uses.
struct Trial {
  bool uses_rank = false;
  int64_t rank = 0;
  std::vector<std::pair<std::string, int64_t>> values;  // dims and scalars

  std::string str() const {  // "on rank 3 with tokens = 1"
    std::string s = uses_rank        ? fmt::format("on rank {}", rank)
                    : values.empty() ? "on every rank"
                                     : "";
    for (size_t i = 0; i < values.size(); ++i)
      s += fmt::format("{}{} = {}",
                       i > 0       ? ", "
                       : s.empty() ? "with "
                                   : " with ",
                       values[i].first, values[i].second);
    return s;
  }
};

bool divides_by_variable(const Expr& e) {
  for (size_t i = 1; i < e.nodes().size(); ++i) {
    const Expr::Kind kind = e.nodes()[i].kind;
    if ((kind == Expr::Kind::Div || kind == Expr::Kind::Mod) &&
        e.nodes()[i - 1].kind != Expr::Kind::Const)
      return true;
  }
  return false;
}

/// Evaluates `e` on every rank, and where dims or scalars matter at the ends of their ranges
/// (everywhere if there is one with a short range and `e` divides), until `accept` says no; returns
/// that trial. What fails elsewhere is found at launch.
std::optional<Trial> first_failure(const Context& c, const Expr& e, const Expr* guard,
                                   const std::function<bool(const ir::EvalResult&)>& accept) {
  constexpr int64_t kAll = 1024;
  constexpr size_t kMaxVars = 6;
  Trial trial;
  std::vector<ir::Interval> ranges;
  for (const std::string& name : e.vars()) {
    const auto it = c.variables.find(name);
    if (it == c.variables.end() || !it->second.sound) return std::nullopt;
    if (it->second.kind == Variable::Kind::Rank) trial.uses_rank = true;
    if (it->second.kind == Variable::Kind::Dim || it->second.kind == Variable::Kind::Scalar) {
      trial.values.emplace_back(name, it->second.range.lo);
      ranges.push_back(it->second.range);
    }
  }
  if (ranges.size() > kMaxVars) return std::nullopt;
  const bool guarded_by_rank = guard != nullptr && guard->uses("rank");
  const auto lookup = [&](std::string_view name) -> std::optional<int64_t> {
    if (name == "rank") return trial.rank;
    if (name == "world") return c.graph.world;
    for (const auto& [n, v] : trial.values)
      if (n == name) return v;
    return std::nullopt;
  };
  const bool every =
      ranges.size() == 1 && ranges[0].hi - ranges[0].lo < kAll && divides_by_variable(e);
  const int64_t trials = every ? ranges[0].hi - ranges[0].lo + 1 : int64_t{1} << ranges.size();
  const int64_t ranks = trial.uses_rank || guarded_by_rank ? c.graph.world : 1;
  for (trial.rank = 0; trial.rank < ranks; ++trial.rank) {
    if (guard != nullptr) {
      const ir::EvalResult g = ir::evaluate(*guard, lookup);
      if (g.value && *g.value == 0) continue;
    }
    for (int64_t t = 0; t < trials; ++t) {
      for (size_t i = 0; i < ranges.size(); ++i)
        trial.values[i].second = every                 ? ranges[i].lo + t
                                 : ((t >> i) & 1) != 0 ? ranges[i].hi
                                                       : ranges[i].lo;
      if (!accept(ir::evaluate(e, lookup))) return trial;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Expr> read_expr(Context& c, const Raw& raw, const std::string& what, ExprUse use,
                              const Expr* guard) {
  if (raw.kind == Raw::Kind::Int) return Expr(raw.integer);
  if (raw.kind != Raw::Kind::String) {
    c.error(raw.loc,
            fmt::format("{} must be an integer or an expression, found {}", what, describe(raw)));
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
  std::string error;
  const auto failure = first_failure(c, e, guard, [&](const ir::EvalResult& r) {
    error = r.error;
    return r.value.has_value();
  });
  if (failure) {
    c.error(raw.loc, fmt::format("{} {}", error, failure->str()));
    return std::nullopt;
  }
  return parsed.expr;
}

bool check_positive(Context& c, const Expr& e, ir::Loc loc, const std::string& what) {
  int64_t value = 0;
  const auto failure = first_failure(c, e, nullptr, [&](const ir::EvalResult& r) {
    value = r.value.value_or(1);
    return value >= 1;
  });
  if (!failure) return true;
  if (e.is_constant())
    c.error(loc, fmt::format("{} must be at least 1, found {}", what, value));
  else if (failure->values.empty())
    c.error(loc, fmt::format("{} must be at least 1, but '{}' is {}", what, e.str(), value));
  else
    c.error(loc, fmt::format("{} must be at least 1, but '{}' is {} {}", what, e.str(), value,
                             failure->str()));
  return false;
}

}  // namespace maco::frontend
