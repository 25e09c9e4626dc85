// random_maker.cpp: sizes, declarations and the choice of values that an op reads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tests/fuzz/random_maker.h"

namespace maco::fuzz {

void Maker::choose_sizes() {
  const bool big = r_.chance(75);
  for (int i = 0; i < 2; ++i)
    rows_.push_back(big ? r_.pick<int64_t>({31, 33, 64, 65, 67, 96, 100, 130})
                        : r_.pick<int64_t>({1, 2, 3, 5, 7, 8, 13, 16, 31}));
  for (int i = 0; i < 3; ++i)
    widths_.push_back(big ? r_.pick<int64_t>({32, 40, 48, 64, 72, 80, 96, 97, 128, 160})
                          : r_.pick<int64_t>({4, 6, 8, 12, 13, 16, 24, 31, 40}));
  if (r_.chance(6)) {  // more than travels in packets
    rows_[0] = 257;
    widths_[0] = 264;
    huge_ = true;
  }
  if (!g_.plan.dims) return;
  const int64_t most = big ? r_.range(24, 100) : r_.range(2, 17);
  dims_.push_back({"tokens", r_.chance(80) ? 1 : r_.range(1, most), most});
  if (r_.chance(30)) dims_.push_back({"batch", 1, r_.range(2, 9)});
  for (const auto& d : dims_)
    declare(d.name, d.min > 1 ? fmt::format("dim {} <= {} <= {}", d.min, d.name, d.max)
                              : fmt::format("dim {} <= {}", d.name, d.max));
}

Extent Maker::rows() {
  if (dims_.empty() || (!needs_dims_ && r_.chance(40))) return fixed_rows();
  if (dims_.size() > 1 && r_.chance(25)) return {0, 0, r_.range(1, 3)};
  if (r_.chance(15)) return {r_.range(1, 3), r_.range(1, 2), 0};
  return {0, 1, 0};
}

int64_t Maker::most_of(const Extent& e) const {
  int64_t n = e.fixed;
  for (const auto& d : dims_) n += d.max * (d.name == "tokens" ? e.tokens : e.batch);
  return n;
}

int64_t Maker::least_of(const Extent& e) const {
  int64_t n = e.fixed;
  for (const auto& d : dims_) n += d.min * (d.name == "tokens" ? e.tokens : e.batch);
  return n;
}

std::string Maker::shape_text(const Shape& s) {
  std::vector<std::string> entries;
  for (const Extent& e : s) entries.push_back(e.text());
  return fmt::format("[{}]", fmt::join(entries, ", "));
}

std::string Maker::tensor(const char* prefix, const char* kind, DType dtype, const Shape& shape) {
  const std::string name = fresh(prefix);
  declare(name, fmt::format("{} {} : {}{}", kind, name, ir::name(dtype), shape_text(shape)));
  return name;
}

std::string Maker::param(DType dtype, const std::vector<int64_t>& extents) {
  Shape s;
  for (int64_t n : extents) s.push_back({n, 0, 0});
  return tensor("w", "param", dtype, s);
}

Value Maker::input(DType dtype, const Shape& shape) {
  Value v{tensor("x", "input", dtype, shape), dtype, shape, 5, true, false, 0};
  if (!is_float(dtype)) v.most = 8;
  values_.push_back(v);
  return v;
}

Value Maker::random_input(DType dtype) {
  const int64_t axes = r_.pick<int64_t>({1, 2, 2, 2, 2, 2, 3, 4});
  if (axes == 1)
    return input(
        dtype, {dims_.empty() || (!needs_dims_ && r_.chance(60)) ? Extent{width(), 0, 0} : rows()});
  Shape s = {rows()};
  for (int64_t a = 2; a < axes; ++a) s.push_back({r_.range(1, 3), 0, 0});
  s.push_back({width(), 0, 0});
  while (!fits(s)) s[0] = {5, 0, 0};
  return input(dtype, s);
}

std::string Maker::scalar() {
  if (!scalar_) declare("pos", "scalar pos in [0, 24)");
  scalar_ = true;
  return "pos";
}

Value Maker::pick(DType dtype, const Accept& accept, const std::function<Shape()>& shape) {
  std::vector<const Value*> found;
  for (const Value& v : values_)
    if (v.dtype == dtype && has_dims(v) && accept(v)) found.push_back(&v);
  // Prefers results to inputs, and those that nothing reads yet to others: long chains, few
  // outputs.
  const auto prefer = [&](const auto& better) {
    std::vector<const Value*> some;
    for (const Value* v : found)
      if (better(*v)) some.push_back(v);
    if (!some.empty() && r_.chance(75)) found = some;
  };
  prefer([](const Value& v) { return v.name[0] == 't'; });
  prefer([&](const Value& v) { return !read_.count(v.name); });
  if (!found.empty() && !r_.chance(12)) {
    size_t back = 0;
    while (back + 1 < found.size() && r_.chance(50)) ++back;
    return *found[found.size() - 1 - back];
  }
  for (int tries = 0; !shape && tries < 60; ++tries) {
    const size_t before = values_.size(), declared = g_.declarations.size();
    Value v = random_input(dtype);
    if (has_dims(v) && accept(v)) return v;
    values_.resize(before);
    g_.declarations.resize(declared);
  }
  return input(dtype, shape ? shape() : Shape{rows(), {16, 0, 0}});
}

Value Maker::matrix(DType t, double most) {
  return pick(
      t,
      [=, this](const Value& v) {
        return v.axes() == 2 && v.last() >= 4 && v.most <= most && fits(v.shape);
      },
      [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
}

Value Maker::rows_of(DType t, double most, bool uneven) {
  return pick(
      t,
      [=, this](const Value& v) {
        return v.axes() >= 2 && v.last() >= 4 && v.most <= most && !(uneven && v.flat) &&
               fits(v.shape);
      },
      [&] { return Shape{rows(), {std::max<int64_t>(4, width()), 0, 0}}; });
}

Value Maker::emit(const std::string& feature, const std::vector<std::string>& in,
                  std::vector<std::string> attrs, Value result, int outs) {
  OpText op;
  op.feature = feature;
  op.kind = feature.substr(0, feature.find(' '));
  op.in = in;
  read_.insert(in.begin(), in.end());
  op.attrs = std::move(attrs);
  for (int i = 0; i < outs; ++i) op.out.push_back(fresh("t"));
  g_.ops.push_back(op);
  for (int i = 0; i < outs; ++i) {
    result.name = op.out[static_cast<size_t>(i)];
    values_.push_back(result);
  }
  return result;
}

DType Maker::typed(DType t, std::vector<std::string>& attrs) {
  const DType out = is_float(t) ? other_float(t) : t;
  if (out != t) attrs.push_back(fmt::format("dtype = {}", ir::name(out)));
  return out;
}

Value Maker::moved(const Value& v, Shape shape) {
  Value m = v;
  m.shape = std::move(shape);
  return m;
}

}  // namespace maco::fuzz
