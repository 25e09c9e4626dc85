// check_tensors.cpp: checks the declared names: dims, tensors and scalars.
#include <fmt/format.h>

#include <unordered_map>

#include "compiler/graph/check_parts.h"

namespace maco::graph {

using ir::TensorKind;

namespace {

constexpr int64_t kI32Min = INT32_MIN, kI32Max = INT32_MAX;
constexpr size_t kMostAxes = 4;

/// Makes `name` known to expressions, or reports what it collides with. `what`: "dim" or "scalar".
void declare(Check& c, const std::string& name, ir::Loc loc, const char* what, Variable variable) {
  if (name == "rank" || name == "world") {
    c.error(loc,
            fmt::format("a {} can't be called '{}', which stands for {} in expressions", what, name,
                        name == "rank" ? "the rank that runs the graph" : "the number of ranks"));
  } else if (const auto [other, fresh] = c.variables.emplace(name, variable);
             !fresh && other->second.kind != variable.kind) {
    c.error(loc, fmt::format("'{}' is the name of a dim and of a scalar", name));
  }
}

void check_scalar(Check& c, const ir::Tensor& t) {
  const std::string what = fmt::format("scalar '{}'", t.name);
  bool sound = false;
  if (t.dtype != ir::DType::I32 || !t.shape.empty())
    c.error(t.loc, fmt::format("{} must be an i32 without a shape", what));
  else if (t.range_hi <= t.range_lo)
    c.error(t.loc, fmt::format("the range of {} is empty: [{}, {}) has no value", what, t.range_lo,
                               t.range_hi));
  else if (t.range_lo < kI32Min || t.range_hi > kI32Max + 1)
    c.error(t.loc, fmt::format("the range of {} must be within [{}, {}), found [{}, {})", what,
                               kI32Min, kI32Max + 1, t.range_lo, t.range_hi));
  else
    sound = true;
  const ir::Interval range = sound ? ir::Interval{t.range_lo, t.range_hi - 1} : ir::Interval{};
  declare(c, t.name, t.loc, "scalar", {Variable::Kind::Scalar, range, sound});
}

bool check_extent(Check& c, const ir::Tensor& t, size_t axis) {
  const ir::Expr& e = t.shape[axis];
  if (const auto n = e.constant(); n && *n >= 1) return true;
  const std::string what = fmt::format("axis {} of tensor '{}'", axis, t.name);
  if (!check_expr(c, e, t.loc, what, ExprUse::Shape)) return false;
  if (axis > 0)
    for (const std::string& name : e.vars())
      if (c.variables.find(name)->second.kind == Variable::Kind::Dim) {
        c.error(t.loc,
                fmt::format("dim '{}' may stand in axis 0 only, but this is {}", name, what));
        return false;
      }
  const std::string why = why_not_positive(c.variables, e, what);
  if (!why.empty()) c.error(t.loc, why);
  return why.empty();
}

/// Checks the shape of a tensor of the caller's. An output may leave its shape to its op.
void check_shape(Check& c, const ir::Tensor& t) {
  if (t.shape.empty() && t.kind == TensorKind::Output) return;
  if (t.shape.empty() || t.shape.size() > kMostAxes) {
    c.error(t.loc, fmt::format("tensor '{}' has {} axes, but tensors have 1 to {}", t.name,
                               t.shape.size(), kMostAxes));
    return;
  }
  for (size_t axis = 0; axis < t.shape.size(); ++axis)
    if (!check_extent(c, t, axis)) return;
  for (const ir::Expr& e : t.shape)
    for (const std::string& name : e.vars())
      if (!c.variables.find(name)->second.sound) return;
  if (ir::max_elements(c.graph, t.shape) > ir::kMaxTensorBytes / ir::size_of(t.dtype))
    c.error(t.loc, fmt::format("tensor '{}' would take more than 2^48 bytes", t.name));
}

}  // namespace

void check_dims(Check& c) {
  const int64_t world = c.graph.world;
  c.variables["rank"] = {Variable::Kind::Rank, {0, world - 1}};
  c.variables["world"] = {Variable::Kind::World, {world, world}};
  std::unordered_map<std::string_view, const ir::Dim*> first;
  for (const ir::Dim& d : c.graph.dims) {
    if (!check_name(c, d.name, d.loc, "the name of a dim")) continue;
    const auto [other, fresh] = first.emplace(d.name, &d);
    if (!fresh) {
      if (c.error(d.loc, fmt::format("dim '{}' is declared twice", d.name)))
        c.report.note(other->second->loc, fmt::format("'{}' is declared here first", d.name));
      continue;
    }
    bool sound = false;
    if (d.max < 1 || d.max > kI32Max)
      c.error(d.loc,
              fmt::format("'max' of dim '{}' must be 1 to {}, found {}", d.name, kI32Max, d.max));
    else if (d.min < 1)
      c.error(d.loc,
              fmt::format("'min' of dim '{}' must be 1 to {}, found {}", d.name, kI32Max, d.min));
    else if (d.min > d.max)
      c.error(d.loc, fmt::format("'min' of dim '{}' is {}, more than its 'max' of {}", d.name,
                                 d.min, d.max));
    else
      sound = true;
    const ir::Interval range = sound ? ir::Interval{d.min, d.max} : ir::Interval{1, 1};
    declare(c, d.name, d.loc, "dim", {Variable::Kind::Dim, range, sound});
  }
}

void check_tensors(Check& c) {
  std::unordered_map<std::string_view, const ir::Tensor*> first;
  // Scalars come first, so that shapes can be told that they can't use them.
  for (const ir::Tensor& t : c.graph.tensors) {
    if (!check_name(c, t.name, t.loc, "the name of a tensor")) continue;
    const auto [other, fresh] = first.emplace(t.name, &t);
    if (fresh) {
      if (t.kind == TensorKind::Scalar) check_scalar(c, t);
    } else if (c.error(t.loc, fmt::format("tensor '{}' is declared twice", t.name))) {
      c.report.note(other->second->loc, fmt::format("'{}' is declared here first", t.name));
    }
  }
  for (const ir::Tensor& t : c.graph.tensors)
    if (t.kind != TensorKind::Scalar && t.kind != TensorKind::Temp) check_shape(c, t);
}

}  // namespace maco::graph
