// check_tensors.cpp: checks the declared names: dims, tensors and scalars.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/check_parts.h"

namespace maco::graph {

using ir::TensorKind;

namespace {

constexpr int64_t kI32Min = INT32_MIN, kI32Max = INT32_MAX;
constexpr size_t kMostAxes = 4;

/// Makes `name` known to expressions, or reports what it collides with. `what`: "dim" or "scalar".
void declare_variable(Check& c, const std::string& name, ir::Loc loc, const char* what,
                      Variable variable) {
  if (name == "rank" || name == "world") {
    c.error(loc,
            fmt::format("a {} can't be called '{}', which stands for {} in expressions", what, name,
                        name == "rank" ? "the rank that runs the graph" : "the number of ranks"));
    return;
  }
  const auto [other, fresh] = c.variables.emplace(name, variable);
  if (fresh || other->second.kind == variable.kind) return;
  const bool reported =
      c.error(loc, fmt::format("'{}' is the name of a dim and of a scalar", name));
  if (const auto dim = c.dims.find(name); reported && dim != c.dims.end())
    c.note(dim->second, fmt::format("dim '{}' is declared here", name));
}

bool check_typical(Check& c, std::optional<int64_t> typical, ir::Interval range, ir::Loc loc,
                   const std::string& what) {
  return !typical ||
         check_within(c, *typical, range.lo, range.hi, loc, "the typical value of " + what);
}

/// Checks the shape of a tensor of the caller's. An output may leave its shape to its op.
void check_shape(Check& c, const ir::Tensor& t) {
  if (t.shape.empty() && t.kind == TensorKind::Output) return;
  const std::string what = fmt::format("tensor '{}'", t.name);
  if (!check_axes(c, t.shape.size(), t.loc, what)) return;
  for (size_t axis = 0; axis < t.shape.size(); ++axis) {
    const ir::Expr& e = t.shape[axis];
    if (const auto n = e.constant(); n && *n >= 1) continue;
    if (!check_expr(c, e, {t.loc, axis_of(axis, what), ExprUse::Shape}) ||
        !check_extent(c, e, axis, t.loc, what))
      return;
  }
  check_bytes(c, t, t.loc);
}

}  // namespace

bool check_dim(Check& c, const ir::Dim& d, const DimPlaces& at, bool readable) {
  const std::string what = fmt::format("dim '{}'", d.name);
  bool sound = check_within(c, d.max, 1, kI32Max, at.max, "'max' of " + what);
  sound = check_within(c, d.min, 1, kI32Max, at.min, "'min' of " + what) && sound && readable;
  if (sound && d.min > d.max) {
    c.error(at.min,
            fmt::format("'min' of {} is {}, more than its 'max' of {}", what, d.min, d.max));
    sound = false;
  }
  const ir::Interval range = sound ? ir::Interval{d.min, d.max} : ir::Interval{1, 1};
  if (sound) sound = check_typical(c, d.typical, range, at.typical, what);
  declare_variable(c, d.name, d.loc, "dim", {Variable::Kind::Dim, range, sound});
  return sound;
}

bool check_scalar(Check& c, const ir::Tensor& t, const ScalarPlaces& at, bool readable) {
  const std::string what = fmt::format("scalar '{}'", t.name);
  bool sound = readable;
  if (t.dtype != ir::DType::I32 || !t.shape.empty()) {
    c.error(t.loc, fmt::format("{} must be an i32 without a shape", what));
    sound = false;
  }
  const auto within = [&](int64_t value, int64_t most, ir::Loc loc, const char* end) {
    if (!check_within(c, value, kI32Min, most, loc, fmt::format("{} of {}", end, what)))
      sound = false;
  };
  within(t.range_lo, kI32Max, at.first, "the first value");
  within(t.range_hi, kI32Max + 1, at.end, "the end of the range");
  if (sound && t.range_hi <= t.range_lo) {
    c.error(at.range, fmt::format("the range of {} is empty: [{}, {}) has no value", what,
                                  t.range_lo, t.range_hi));
    sound = false;
  }
  const ir::Interval range = sound ? ir::Interval{t.range_lo, t.range_hi - 1} : ir::Interval{};
  if (sound) sound = check_typical(c, t.typical, range, at.typical, what);
  declare_variable(c, t.name, t.loc, "scalar", {Variable::Kind::Scalar, range, sound});
  return sound;
}

bool check_axes(Check& c, size_t axes, ir::Loc loc, const std::string& tensor) {
  if (axes >= 1 && axes <= kMostAxes) return true;
  c.error(loc, fmt::format("{} has {} axes, but tensors have 1 to {}", tensor, axes, kMostAxes));
  return false;
}

bool check_extent(Check& c, const ir::Expr& e, size_t axis, ir::Loc loc,
                  const std::string& tensor) {
  const std::string what = axis_of(axis, tensor);
  if (axis > 0)
    for (const std::string& name : e.vars())
      if (c.dims.count(name) > 0) {
        c.error(loc, fmt::format("dim '{}' may stand in axis 0 only, but this is {}", name, what));
        return false;
      }
  const std::string why = why_not_positive(c.variables, e, what);
  if (!why.empty()) c.error(loc, why);
  return why.empty();
}

bool check_bytes(Check& c, const ir::Tensor& t, ir::Loc loc) {
  if (!c.variables.find("world")->second.sound) return true;
  for (const ir::Expr& e : t.shape)
    for (const std::string& name : e.vars())
      if (const auto v = c.variables.find(name); v == c.variables.end() || !v->second.sound)
        return true;
  if (ir::max_elements(c.graph, t.shape) <= ir::kMaxTensorBytes / ir::size_of(t.dtype)) return true;
  c.error(loc, fmt::format("tensor '{}' would take more than 2^48 bytes", t.name));
  return false;
}

void check_dims(Check& c) {
  const int64_t world = c.graph.world;
  c.variables["rank"] = {Variable::Kind::Rank, {0, world - 1}};
  c.variables["world"] = {Variable::Kind::World, {world, world}};
  for (const ir::Dim& d : c.graph.dims)
    if (check_name(c, d.name, d.loc, kDimName) && declare(c, c.dims, "dim", d.name, d.loc))
      check_dim(c, d, {d.loc, d.loc, d.loc});
}

void check_tensors(Check& c) {
  // Scalars come first, so that a shape that names one is refused for that.
  for (const ir::Tensor& t : c.graph.tensors)
    if (check_name(c, t.name, t.loc, kTensorName) &&
        declare(c, c.tensors, "tensor", t.name, t.loc) && t.kind == TensorKind::Scalar)
      check_scalar(c, t, {t.loc, t.loc, t.loc, t.loc});
  for (const ir::Tensor& t : c.graph.tensors)
    if (t.kind != TensorKind::Scalar && t.kind != TensorKind::Temp) check_shape(c, t);
}

}  // namespace maco::graph
