#include "compiler/graph/expressions.h"

#include <fmt/format.h>

namespace maco::graph {

using ir::Expr;

Variables variables_of(const ir::Graph& graph) {
  Variables variables;
  variables["rank"] = {Variable::Kind::Rank, {0, graph.world - 1}};
  variables["world"] = {Variable::Kind::World, {graph.world, graph.world}};
  for (const ir::Dim& d : graph.dims)
    variables.emplace(d.name, Variable{Variable::Kind::Dim, {d.min, d.max}});
  for (const ir::Tensor& t : graph.tensors)
    if (t.kind == ir::TensorKind::Scalar)
      variables.emplace(t.name, Variable{Variable::Kind::Scalar, {t.range_lo, t.range_hi - 1}});
  return variables;
}

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

std::string Trial::str() const {
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

namespace {

bool divides_by_variable(const Expr& e) {
  for (size_t i = 1; i < e.nodes().size(); ++i) {
    const Expr::Kind kind = e.nodes()[i].kind;
    if ((kind == Expr::Kind::Div || kind == Expr::Kind::Mod) &&
        e.nodes()[i - 1].kind != Expr::Kind::Const)
      return true;
  }
  return false;
}

}  // namespace

std::optional<Trial> first_failure(const Variables& variables, const Expr& e, const Expr* guard,
                                   const std::function<bool(const ir::EvalResult&)>& accept) {
  const auto ranks_of = variables.find("world");
  if (ranks_of == variables.end()) return std::nullopt;
  const int64_t world = ranks_of->second.range.hi;
  constexpr int64_t kAll = 1024;
  constexpr size_t kMaxVars = 6;
  Trial trial;
  std::vector<ir::Interval> ranges;
  for (const std::string& name : e.vars()) {
    const auto it = variables.find(name);
    if (it == variables.end() || !it->second.sound) return std::nullopt;
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
    if (name == "world") return world;
    for (const auto& [n, v] : trial.values)
      if (n == name) return v;
    return std::nullopt;
  };
  const bool every =
      ranges.size() == 1 && ranges[0].hi - ranges[0].lo < kAll && divides_by_variable(e);
  const int64_t trials = every ? ranges[0].hi - ranges[0].lo + 1 : int64_t{1} << ranges.size();
  const int64_t ranks = trial.uses_rank || guarded_by_rank ? world : 1;
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

std::string why_no_value(const Variables& variables, const Expr& e, const Expr* guard) {
  std::string error;
  const auto failure = first_failure(variables, e, guard, [&](const ir::EvalResult& r) {
    error = r.error;
    return r.value.has_value();
  });
  return failure ? fmt::format("{} {}", error, failure->str()) : "";
}

std::string why_not_positive(const Variables& variables, const Expr& e, const std::string& what) {
  int64_t value = 0;
  const auto failure = first_failure(variables, e, nullptr, [&](const ir::EvalResult& r) {
    value = r.value.value_or(1);
    return value >= 1;
  });
  if (!failure) return "";
  if (e.is_constant()) return fmt::format("{} must be at least 1, found {}", what, value);
  return fmt::format("{} must be at least 1, but '{}' is {}{}", what, e.str(), value,
                     failure->values.empty() ? "" : " " + failure->str());
}

}  // namespace maco::graph
