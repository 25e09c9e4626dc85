// build_tensors.cpp: the declared names: dims, tensors and scalars.

#include <fmt/format.h>

#include "compiler/frontend/build.h"

namespace maco::frontend {

using ir::TensorKind;

namespace {

constexpr int64_t kI32Min = INT32_MIN, kI32Max = INT32_MAX;

/// Makes `name` known to expressions, or reports what it collides with. `what`: "dim" or "scalar".
void declare_variable(BuildContext& c, const std::string& name, ir::Loc loc, const char* what,
                      const Variable& v) {
  if (name == "rank" || name == "world") {
    c.error(loc,
            fmt::format("a {} can't be called '{}', which stands for {} in expressions", what, name,
                        name == "rank" ? "the rank that runs the graph" : "the number of ranks"));
    return;
  }
  if (c.variables.emplace(name, v).second) return;
  const ir::Dim* dim = c.graph.find_dim(name);
  if (c.error(loc, fmt::format("'{}' is the name of a dim and of a scalar", name)) &&
      dim != nullptr)
    c.note(dim->loc, fmt::format("dim '{}' is declared here", name));
}

/// The tensor's index, or nothing if the name is taken.
std::optional<size_t> declare_tensor(BuildContext& c, const std::string& name, ir::Loc loc) {
  const auto [it, fresh] = c.tensor_of.emplace(name, c.graph.tensors.size());
  if (!fresh) {
    if (c.error(loc, fmt::format("tensor '{}' is declared twice", name)))
      c.note(c.graph.tensors[it->second].loc, fmt::format("'{}' is declared here first", name));
    return std::nullopt;
  }
  ir::Tensor t;
  t.name = name;
  t.loc = loc;
  c.graph.tensors.push_back(std::move(t));
  c.tensor_state.emplace_back();
  return it->second;
}

/// Reads 'typical', if `raw` has it. `range`: the range of the thing that `what` names. Returns
/// false if an error was reported.
bool read_typical(BuildContext& c, const Raw& raw, const std::string& what, ir::Interval range,
                  std::optional<int64_t>& typical) {
  const Raw* value = raw.find("typical");
  if (value == nullptr) return true;
  typical = read_constant(c, *value, "the typical value of " + what, range.lo, range.hi);
  return typical.has_value();
}

bool read_scalar(BuildContext& c, const Raw& raw, const std::string& what, ir::Tensor& t) {
  t.dtype = ir::DType::I32;
  t.range_lo = 0;
  t.range_hi = 1;
  const Raw* range = require(c, raw, what, "range");
  if (range == nullptr) return false;
  const std::string expected = "a list of two integers: the first value and the one after the last";
  if (!expect(c, *range, Raw::Kind::List, "the range of " + what, expected)) return false;
  if (range->list.size() != 2) {
    c.error(range->loc, fmt::format("the range of {} must be {}, found {} entries", what, expected,
                                    range->list.size()));
    return false;
  }
  const auto lo = read_constant(c, range->list[0], "the first value of " + what, kI32Min, kI32Max);
  const auto hi =
      read_constant(c, range->list[1], "the end of the range of " + what, kI32Min, kI32Max + 1);
  if (!lo || !hi) return false;
  if (*hi <= *lo) {
    c.error(range->loc,
            fmt::format("the range of {} is empty: [{}, {}) has no value", what, *lo, *hi));
    return false;
  }
  t.range_lo = *lo;
  t.range_hi = *hi;
  return read_typical(c, raw, what, {*lo, *hi - 1}, t.typical);
}

/// Dims may stand in axis 0 only.
bool check_dims(BuildContext& c, const ir::Expr& e, const Raw& raw, size_t axis,
                const std::string& what) {
  if (axis == 0) return true;
  for (const std::string& name : e.vars()) {
    if (c.graph.find_dim(name) == nullptr) continue;
    c.error(raw.loc, fmt::format("dim '{}' may stand in axis 0 only, but this is axis {} of {}",
                                 name, axis, what));
    return false;
  }
  return true;
}

bool read_shape(BuildContext& c, const Raw& raw, const std::string& what, ir::Tensor& t) {
  if (!expect(c, raw, Raw::Kind::List, "the shape of " + what, "a list of 1 to 4 extents"))
    return false;
  if (raw.list.empty() || raw.list.size() > 4) {
    c.error(raw.loc, fmt::format("{} has {} axes, but tensors have 1 to 4", what, raw.list.size()));
    return false;
  }
  bool good = true;
  for (size_t axis = 0; axis < raw.list.size(); ++axis) {
    const Raw& entry = raw.list[axis];
    const std::string which = fmt::format("axis {} of {}", axis, what);
    const auto e = read_expr(c, entry, which, ExprUse::Shape);
    const bool fine =
        e && check_dims(c, *e, entry, axis, what) && check_positive(c, *e, entry.loc, which);
    good = good && fine;
    if (fine) t.shape.push_back(*e);
  }
  return good;
}

bool check_size(BuildContext& c, const ir::Tensor& t, const Raw& shape, const std::string& what) {
  if (!c.world_sound) return true;
  for (const ir::Expr& e : t.shape)
    for (const std::string& name : e.vars())
      if (auto v = c.variables.find(name); v == c.variables.end() || !v->second.sound) return true;
  const int64_t elements = ir::max_elements(c.graph, t.shape);
  if (elements <= ir::kMaxTensorBytes / ir::size_of(t.dtype)) return true;
  c.error(shape.loc, fmt::format("{} would take more than 2^48 bytes", what));
  return false;
}

void read_tensor(BuildContext& c, const std::string& name, ir::Loc loc, const Raw& raw) {
  const std::string what = "tensor '" + name + "'";
  const auto slot = declare_tensor(c, name, loc);
  if (!slot) return;
  ir::Tensor t = c.graph.tensors[*slot];
  bool good = expect(c, raw, Raw::Kind::Map, what, "a map with 'kind', 'dtype' and 'shape'");
  const Raw* kind_raw = good ? require(c, raw, what, "kind") : nullptr;
  std::optional<TensorKind> kind;
  if (kind_raw != nullptr && kind_raw->kind == Raw::Kind::String &&
      (kind_raw->text == "temp" || kind_raw->text == "temporary"))
    c.error(kind_raw->loc, fmt::format("temporaries are not declared: the shape and dtype of '{}' "
                                       "follow from the op that defines it",
                                       name));
  else if (kind_raw != nullptr)
    kind = read_enum<TensorKind>(c, *kind_raw, "the kind of " + what,
                                 {"input", "param", "state", "scalar", "output"});
  good = good && kind.has_value();
  // Without a kind the keys of scalars and of tensors are all allowed.
  t.kind = kind.value_or(TensorKind::State);
  if (kind == TensorKind::Scalar) {
    const std::string scalar = "scalar '" + name + "'";
    check_keys(c, raw, scalar, {"kind", "range", "typical"});
    good = read_scalar(c, raw, scalar, t) && good;
    c.graph.tensors[*slot] = t;
    declare_variable(c, name, loc, "scalar",
                     {Variable::Kind::Scalar, {t.range_lo, t.range_hi - 1}, good});
  } else if (raw.kind == Raw::Kind::Map) {
    if (kind) check_keys(c, raw, what, {"kind", "dtype", "shape"});
    const Raw* shape = raw.find("shape");
    const Raw* dtype = raw.find("dtype");
    // `output y = op(...)`: both follow from the op.
    const bool open = kind == TensorKind::Output && c.options.open_outputs && shape == nullptr &&
                      dtype == nullptr;
    if (kind && !open) {
      dtype = require(c, raw, what, "dtype");
      shape = require(c, raw, what, "shape");
    }
    const auto type = dtype == nullptr ? std::nullopt
                                       : read_enum<ir::DType>(c, *dtype, "the dtype of " + what,
                                                              words_of_dtypes());
    good = good && (open || type.has_value());
    t.dtype = type.value_or(ir::DType::F32);
    good = (open || (shape != nullptr && read_shape(c, *shape, what, t) &&
                     check_size(c, t, *shape, what))) &&
           good;
    if (!good) t.shape.clear();
  }
  c.graph.tensors[*slot] = std::move(t);
  c.tensor_state[*slot].poisoned = !good;
}

}  // namespace

void build_dims(BuildContext& c, const Raw& dims) {
  if (!expect(c, dims, Raw::Kind::Map, "'dims'", "a map from names to {\"max\": n}")) return;
  for (const Raw::Entry& e : dims.map) {
    Raw name;
    name.kind = Raw::Kind::String;
    name.text = e.key;
    name.loc = e.key_loc;
    if (!read_name(c, name, "the name of a dim")) continue;
    if (const ir::Dim* other = c.graph.find_dim(e.key)) {
      if (c.error(e.key_loc, fmt::format("dim '{}' is declared twice", e.key)))
        c.note(other->loc, fmt::format("'{}' is declared here first", e.key));
      continue;
    }
    const std::string what = "dim '" + e.key + "'";
    ir::Dim dim{.name = e.key, .loc = e.key_loc};
    bool good =
        expect(c, e.value, Raw::Kind::Map, what, "a map with 'max' and, if it isn't 1, 'min'");
    if (good) {
      check_keys(c, e.value, what, {"max", "min", "typical"});
      const Raw* max = require(c, e.value, what, "max");
      const Raw* min = e.value.find("min");
      const int before = c.report.errors();
      if (max != nullptr)
        dim.max = read_constant(c, *max, "'max' of " + what, 1, kI32Max).value_or(kI32Max);
      if (min != nullptr)
        dim.min = read_constant(c, *min, "'min' of " + what, 1, kI32Max).value_or(1);
      good = max != nullptr && c.report.errors() == before;
      if (good && dim.min > dim.max) {
        c.error(min->loc, fmt::format("'min' of {} is {}, more than its 'max' of {}", what, dim.min,
                                      dim.max));
        good = false;
      }
      if (!good) dim.min = dim.max = 1;
      good = good && read_typical(c, e.value, what, {dim.min, dim.max}, dim.typical);
    }
    const ir::Interval range{dim.min, dim.max};
    c.graph.dims.push_back(std::move(dim));
    declare_variable(c, e.key, e.key_loc, "dim", {Variable::Kind::Dim, range, good});
  }
}

void build_tensors(BuildContext& c, const Raw& tensors) {
  if (!expect(c, tensors, Raw::Kind::Map, "'tensors'", "a map from names to declarations")) {
    c.tensors_sound = false;
    return;
  }
  for (const Raw::Entry& e : tensors.map) {
    Raw name;
    name.kind = Raw::Kind::String;
    name.text = e.key;
    name.loc = e.key_loc;
    if (read_name(c, name, "the name of a tensor")) read_tensor(c, e.key, e.key_loc, e.value);
  }
}

}  // namespace maco::frontend
