// build_tensors.cpp: the declared names: dims, tensors and scalars.

#include <fmt/format.h>

#include "compiler/frontend/build.h"

namespace maco::frontend {

using ir::TensorKind;

namespace {

/// The tensor's index, or nothing if the name is taken.
std::optional<size_t> declare_tensor(BuildContext& c, const std::string& name, ir::Loc loc) {
  if (!graph::declare(c.check, c.check.tensors, "tensor", name, loc)) return std::nullopt;
  const size_t slot = c.graph.tensors.size();
  c.tensor_of.emplace(name, slot);
  ir::Tensor t;
  t.name = name;
  t.loc = loc;
  c.graph.tensors.push_back(std::move(t));
  c.tensor_state.emplace_back();
  return slot;
}

/// A number of a map. Without it `value` stays as it is.
struct Number {
  int64_t value = 0;
  ir::Loc loc;
  bool good = true;  // false: an error was reported
};
Number read_number(BuildContext& c, const Raw* raw, const std::string& what, int64_t otherwise,
                   ir::Loc loc) {
  if (raw == nullptr) return {otherwise, loc};
  const auto value = read_integer(c, *raw, what);
  return {value.value_or(otherwise), raw->loc, value.has_value()};
}

/// Reads 'typical', if `raw` has it, into `typical`. `what`: "dim 'n'". Returns false if an error
/// was reported.
bool read_typical(BuildContext& c, const Raw& raw, const std::string& what,
                  std::optional<int64_t>& typical, ir::Loc& loc) {
  const Raw* value = raw.find("typical");
  if (value == nullptr) return true;
  loc = value->loc;
  typical = read_integer(c, *value, "the typical value of " + what);
  return typical.has_value();
}

bool read_range(BuildContext& c, const Raw& raw, const std::string& what, ir::Tensor& t,
                graph::ScalarPlaces& at) {
  const Raw* range = require(c, raw, what, "range");
  if (range == nullptr) return false;
  const std::string expected = "a list of two integers: the first value and the one after the last";
  if (!expect(c, *range, Raw::Kind::List, "the range of " + what, expected)) return false;
  if (range->list.size() != 2)
    return graph::wrong_type(c.check, range->loc, "the range of " + what, expected,
                             fmt::format("{} entries", range->list.size()));
  const Number lo = read_number(c, &range->list[0], "the first value of " + what, 0, range->loc);
  const Number hi =
      read_number(c, &range->list[1], "the end of the range of " + what, 1, range->loc);
  t.range_lo = lo.value;
  t.range_hi = hi.value;
  at = {range->loc, lo.loc, hi.loc, range->loc};
  return lo.good && hi.good;
}

bool read_scalar(BuildContext& c, const Raw& raw, ir::Tensor& t) {
  const std::string what = "scalar '" + t.name + "'";
  check_keys(c, raw, what, {"kind", "range", "typical"});
  t.dtype = ir::DType::I32;
  t.range_lo = 0;
  t.range_hi = 1;
  graph::ScalarPlaces at{t.loc, t.loc, t.loc, t.loc};
  bool good = read_range(c, raw, what, t, at);
  good = read_typical(c, raw, what, t.typical, at.typical) && good;
  good = graph::check_scalar(c.check, t, at, good);
  if (good) return true;
  t.range_lo = 0;
  t.range_hi = 1;
  return false;
}

bool read_shape(BuildContext& c, const Raw& raw, const std::string& what, ir::Tensor& t) {
  if (!expect(c, raw, Raw::Kind::List, "the shape of " + what, "a list of 1 to 4 extents"))
    return false;
  if (!graph::check_axes(c.check, raw.list.size(), raw.loc, what)) return false;
  bool good = true;
  for (size_t axis = 0; axis < raw.list.size(); ++axis) {
    const Raw& entry = raw.list[axis];
    const auto e = read_expr(c, entry, graph::axis_of(axis, what), ExprUse::Shape);
    const bool fine = e && graph::check_extent(c.check, *e, axis, entry.loc, what);
    good = good && fine;
    if (fine) t.shape.push_back(*e);
  }
  return good;
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
    good = read_scalar(c, raw, t) && good;
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
                     graph::check_bytes(c.check, t, shape->loc))) &&
           good;
    if (!good) t.shape.clear();
  }
  c.graph.tensors[*slot] = std::move(t);
  c.tensor_state[*slot].poisoned = !good;
}

/// Whether a map's key is a name.
bool read_key_name(BuildContext& c, const Raw::Entry& e, const char* what) {
  Raw name;
  name.kind = Raw::Kind::String;
  name.text = e.key;
  name.loc = e.key_loc;
  return read_name(c, name, what).has_value();
}

}  // namespace

void build_dims(BuildContext& c, const Raw& dims) {
  if (!expect(c, dims, Raw::Kind::Map, "'dims'", "a map from names to {\"max\": n}")) return;
  for (const Raw::Entry& e : dims.map) {
    if (!read_key_name(c, e, graph::kDimName) ||
        !graph::declare(c.check, c.check.dims, "dim", e.key, e.key_loc))
      continue;
    const std::string what = "dim '" + e.key + "'";
    ir::Dim dim{.name = e.key, .loc = e.key_loc};
    graph::DimPlaces at{e.key_loc, e.key_loc, e.key_loc};
    bool good =
        expect(c, e.value, Raw::Kind::Map, what, "a map with 'max' and, if it isn't 1, 'min'");
    if (good) {
      check_keys(c, e.value, what, {"max", "min", "typical"});
      const Raw* raw_max = require(c, e.value, what, "max");
      const Number max = read_number(c, raw_max, "'max' of " + what, INT32_MAX, e.key_loc);
      const Number min = read_number(c, e.value.find("min"), "'min' of " + what, 1, e.key_loc);
      dim.max = max.value;
      dim.min = min.value;
      at = {max.loc, min.loc, e.key_loc};
      good = raw_max != nullptr && max.good && min.good;
      good = read_typical(c, e.value, what, dim.typical, at.typical) && good;
    }
    if (!graph::check_dim(c.check, dim, at, good)) dim.min = dim.max = 1;
    c.graph.dims.push_back(std::move(dim));
  }
}

void build_tensors(BuildContext& c, const Raw& tensors) {
  if (!expect(c, tensors, Raw::Kind::Map, "'tensors'", "a map from names to declarations")) {
    c.tensors_sound = false;
    return;
  }
  for (const Raw::Entry& e : tensors.map)
    if (read_key_name(c, e, graph::kTensorName)) read_tensor(c, e.key, e.key_loc, e.value);
}

}  // namespace maco::frontend
