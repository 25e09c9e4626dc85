// Ops that move elements and change nothing but their type: cast, copy, reshape, transpose, slice,
// concat, split.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ir/check.h"
#include "runtime/reference/ops.h"

namespace maco::reference {

namespace {

// Copies `count` elements with conversion: floats by value, integers through i32 (to u8 they wrap).
void convert(const Tensor& from, Tensor& to) {
  MACO_CHECK(from.elements() == to.elements(),
             describe(from.dtype, from.shape) + " to " + describe(to.dtype, to.shape));
  if (from.dtype == to.dtype)
    to.bytes = from.bytes;
  else if (ir::is_float(from.dtype))
    to.store(from.doubles());
  else
    to.store(from.integers());
}

void copy(Call& call) { convert(*call.in[0], call.out[0]); }

int axis_of(Call& call) {
  const auto axes = static_cast<int64_t>(call.in[0]->shape.size());
  const int64_t axis = call.integer("axis", 0);
  return static_cast<int>(axis < 0 ? axis + axes : axis);
}

void transpose(Call& call) {
  const Tensor& x = *call.in[0];
  const size_t axes = x.shape.size();
  std::vector<int64_t> perm = call.list("perm");
  for (size_t a = axes; perm.size() < axes;) perm.push_back(static_cast<int64_t>(--a));
  // Steps in x, in elements, along each axis of the result.
  std::vector<int64_t> step(axes);
  Tensor y(x.dtype, Extents(axes));
  for (size_t a = 0; a < axes; ++a) {
    const auto from =
        static_cast<int>(perm[a] < 0 ? perm[a] + static_cast<int64_t>(axes) : perm[a]);
    step[a] = x.product(from + 1, static_cast<int>(axes));
    y.shape[a] = x.axis(from);
  }
  y.bytes.resize(x.bytes.size());
  const auto size = static_cast<size_t>(ir::size_of(x.dtype));
  std::vector<int64_t> index(axes);
  for (int64_t i = 0; i < x.elements(); ++i) {
    int64_t from = 0;
    for (size_t a = 0; a < axes; ++a) from += index[a] * step[a];
    std::memcpy(y.element(i), x.element(from), size);
    for (size_t a = axes; a-- > 0 && ++index[a] == y.shape[a];) index[a] = 0;
  }
  convert(y, call.out[0]);
}

// `count` entries of `axis`: first, first + step, ...
Tensor take(const Tensor& x, int axis, int64_t first, int64_t step, int64_t count) {
  Extents shape = x.shape;
  shape[static_cast<size_t>(axis)] = count;
  Tensor y(x.dtype, std::move(shape));
  const int64_t inner = x.product(axis + 1, static_cast<int>(x.shape.size())),
                outer = x.product(0, axis);
  const auto bytes = static_cast<size_t>(inner * ir::size_of(x.dtype));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(y.element((o * count + i) * inner),
                  x.element((o * x.axis(axis) + first + i * step) * inner), bytes);
  return y;
}

void slice(Call& call) {
  const Tensor& x = *call.in[0];
  const int axis = axis_of(call);
  const int64_t n = x.axis(axis), step = call.integer("step", 1);
  auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t begin = clamp(call.integer("begin", 0)), end = clamp(call.integer("end", n));
  if (!call.status()) return;
  const int64_t count = begin < end ? (end - begin + step - 1) / step : 0;
  if (count != call.out[0].axis(axis))
    return call.fail(fmt::format("{} entries of axis {} from {} to {}, where the shape says {}",
                                 count, axis, begin, end, call.out[0].axis(axis)));
  convert(take(x, axis, begin, step, count), call.out[0]);
}

void concat(Call& call) {
  const int axis = axis_of(call);
  Tensor& out = call.out[0];
  const int64_t inner = out.product(axis + 1, static_cast<int>(out.shape.size())),
                outer = out.product(0, axis);
  int64_t at = 0;
  for (const Tensor* x : call.in) {
    Tensor part(out.dtype, x->shape);
    convert(*x, part);
    const int64_t count = x->axis(axis);
    for (int64_t o = 0; o < outer; ++o)
      std::memcpy(out.element((o * out.axis(axis) + at) * inner), part.element(o * count * inner),
                  static_cast<size_t>(count * inner * ir::size_of(out.dtype)));
    at += count;
  }
}

void split(Call& call) {
  const int axis = axis_of(call);
  const auto parts = static_cast<int64_t>(call.out.size());
  const int64_t count = call.in[0]->axis(axis) / parts;
  for (int64_t i = 0; i < parts; ++i)
    convert(take(*call.in[0], axis, i * count, 1, count), call.out[static_cast<size_t>(i)]);
}

}  // namespace

std::vector<OpEntry> movement_entries() {
  std::vector<OpEntry> all = {{"cast", copy},           {"copy", copy},   {"reshape", copy},
                              {"transpose", transpose}, {"slice", slice}, {"concat", concat},
                              {"split", split}};
  for (OpEntry& entry : all) entry.moves = Moves::AllInputs;
  return all;
}

}  // namespace maco::reference
