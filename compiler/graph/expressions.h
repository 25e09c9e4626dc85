// Which names an expression of a graph may use, and whether it has a value on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/expr.h"
#include "ir/graph.h"

namespace maco::graph {

/// A name that expressions may use.
struct Variable {
  enum class Kind : uint8_t { Rank, World, Dim, Scalar };
  Kind kind = Kind::Dim;
  ir::Interval range;  // both ends included
  bool sound = true;  // false: its declaration had an error, so nothing is concluded from its range
};
using Variables = std::map<std::string, Variable, std::less<>>;

/// Rank, world, dims and scalars of a graph.
Variables variables_of(const ir::Graph& graph);

/// The place of an expression, which decides the names that it may use.
enum class ExprUse : uint8_t {
  Constant,   // world
  Shape,      // world, dims
  Attribute,  // rank, world, dims
  Runtime,    // scalars too
  Condition,  // world, dims, scalars: the same on all ranks
};
bool allowed(ExprUse use, Variable::Kind kind);
/// Why a name of this kind can't stand in `what`: "scalar 'pos' can't stand in a shape; ...".
std::string why_not(ExprUse use, const std::string& name, Variable::Kind kind,
                    const std::string& what);

/// One assignment of numbers to the names that an expression uses.
struct Trial {
  bool uses_rank = false;
  int64_t rank = 0;
  std::vector<std::pair<std::string, int64_t>> values;  // dims and scalars
  std::string str() const;                              // "on rank 3 with tokens = 1"
};

/// Evaluates `e` on every rank and, if dims or scalars matter, at the ends of their ranges (at all
/// values if there is one with a short range and `e` divides), until `accept` returns false;
/// returns that trial. Ranks where `guard` is 0 don't evaluate `e`. Failures elsewhere are found at
/// launch.
std::optional<Trial> first_failure(const Variables& variables, const ir::Expr& e,
                                   const ir::Expr* guard,
                                   const std::function<bool(const ir::EvalResult&)>& accept);

/// "" if `e` has a value wherever first_failure looks; else "division by zero in '...' on rank 1".
std::string why_no_value(const Variables& variables, const ir::Expr& e, const ir::Expr* guard);
/// "" if the value is at least 1 wherever first_failure looks; else why not. `what`: "axis 0 of
/// tensor 'x'".
std::string why_not_positive(const Variables& variables, const ir::Expr& e,
                             const std::string& what);

}  // namespace maco::graph
