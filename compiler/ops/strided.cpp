#include "compiler/ops/strided.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/ops/strided_region.h"
#include "compiler/ops/tile_shape.h"
#include "ir/check.h"

namespace maco::ops {

using ir::Expr;

namespace {

// Exactly four axes. Only the first may depend on dims; its extent is `rows`.
struct Axes {
  Expr rows{1};
  std::array<int64_t, 4> extent = {1, 1, 1, 1};  // of axis 0: the maximum
  std::array<int64_t, 4> in = {}, out = {};
  int64_t given = 1;  // of axis 3
  // The axis along which x is contiguous, if y is so along axis 3 and x isn't; nothing if either
  // has too few elements for squares.
  std::optional<size_t> turned() const {
    constexpr int64_t kLeast = 16;
    if (in[3] == 1 || out[3] != 1 || extent[3] < kLeast) return std::nullopt;
    for (size_t axis = 3; axis-- > 0;)
      if (in[axis] == 1 && extent[axis] >= kLeast) return axis;
    return std::nullopt;
  }
};

// Drops axes of one element, and merges neighbouring axes that both sides walk in one stride. An
// axis 0 that depends on dims stays alone, and so do columns by which blocks will be cut.
Axes normalize(TileContext& c, const StridedCopy& copy, bool columns_only) {
  struct Axis {
    int64_t extent, in, out;
    bool dynamic;
  };
  std::vector<Axis> axes;
  Axes n;
  for (const StridedAxis& a : copy.axes) {
    const auto extent = a.extent.constant();
    if (extent == 1) continue;
    MACO_CHECK(extent || axes.empty(), "a dim behind axis 0");
    if (!extent) n.rows = a.extent;
    const Axis next = {extent ? *extent : c.range(a.extent).hi, a.in_stride, a.out_stride, !extent};
    const bool apart = columns_only && &a == &copy.axes.back();
    if (!apart && !axes.empty() && !axes.back().dynamic &&
        axes.back().in == next.in * next.extent && axes.back().out == next.out * next.extent) {
      axes.back() = {axes.back().extent * next.extent, next.in, next.out, false};
    } else {
      axes.push_back(next);
    }
  }
  MACO_CHECK(axes.size() <= 4, "more than four axes");
  // A single axis becomes axis 3 (0 if it depends on dims). Of several axes the first becomes axis
  // 0 and the others the last ones.
  size_t at = 4 - axes.size();
  for (size_t i = 0; i < axes.size(); ++i, ++at) {
    const size_t to = i == 0 && (axes.size() > 1 || axes[i].dynamic) ? 0 : at;
    n.extent[to] = axes[i].extent;
    n.in[to] = axes[i].in;
    n.out[to] = axes[i].out;
  }
  if (n.rows.is_constant()) n.rows = Expr(n.extent[0]);
  n.given = copy.given > 0 ? copy.given : n.extent[3];
  return n;
}

// The least number of columns of copies of `rows` rows.
int64_t least_columns(const StridedCopy& copy, int64_t rows) {
  constexpr int64_t kSector = 32;  // bytes that memory moves at once
  return rows > 1 ? kSector / ir::size_of(copy.out.dtype) : 64;
}

// The launch value that says at which row of a state a copy of many rows begins, if only the launch
// knows. Regions then count rows from it, so that blocks of rows don't overlap. Nothing if blocks
// of columns will do.
std::optional<uint32_t> rows_from(TileContext& c, const StridedCopy& copy, const Axes& a) {
  const ir::Buffer& out = c.program()[copy.out.buffer];
  const ir::Interval first = c.range(copy.out_offset);
  const bool by_rows = a.extent[1] == 1 && a.extent[2] == 1 && a.out[0] == copy.out.cols &&
                       a.out[3] == 1 && copy.out_unit == copy.out.cols &&
                       a.extent[3] == copy.out.cols;
  if (out.kind != ir::BufferKind::State || !by_rows || first.lo < 0 ||
      first.hi + a.extent[0] > out.max_rows ||
      least_columns(copy, a.extent[0]) * a.extent[0] <= c.cut().tile[0])
    return std::nullopt;
  return std::get<uint32_t>(std::get<ir::ValueRef>(c.value("out_offset", copy.out_offset).value).v);
}

// The blocks into which the four axes are cut.
std::array<int64_t, 4> choose_blocks(const TileContext& c, const StridedCopy& copy, const Axes& a,
                                     bool columns_only) {
  const int64_t elements = c.cut().tile[0];
  std::array<int64_t, 4> b = {1, 1, 1, 1};
  if (columns_only) {
    // Blocks of rows would overlap on the side whose offset only the launch knows; blocks of
    // columns don't.
    b = {a.extent[0], a.extent[1], a.extent[2], 0};
    const int64_t rows = a.extent[0] * a.extent[1] * a.extent[2];
    const int64_t least = least_columns(copy, rows);
    b[3] =
        std::min(a.extent[3], (std::max<int64_t>(elements / rows, 1) + least - 1) / least * least);
    return b;
  }
  const auto along = [&](size_t axis, int64_t& left) {
    b[axis] = std::min(a.extent[axis], std::max<int64_t>(left, 1));
    left = b[axis] < a.extent[axis] ? 1 : left / b[axis];
  };
  if ((a.in[3] == 1 && a.out[3] == 1) || a.extent[3] == 1) {
    const bool matrix = a.extent[1] == 1 && a.extent[2] == 1;
    const bool dense = a.extent[0] == 1 && matrix;
    const int64_t row = std::max(copy.in.cols, copy.out.cols);
    if (dense && row <= 4 * elements) {
      // Blocks of whole rows of both sides, as far as possible.
      b[3] = std::min(a.extent[3], (elements + row - 1) / row * row);
    } else if (matrix) {
      const TileShape t = tile_matrix(a.extent[0], a.extent[3], elements);
      b[0] = t.bm;
      b[3] = t.bn;
    } else {
      int64_t left = elements;
      if (a.extent[3] > left) left = (left + 63) / 64 * 64;
      for (size_t axis = 4; axis-- > 0;) along(axis, left);
    }
    return b;
  }
  const std::optional<size_t> turned = a.turned();
  if (!turned) {
    int64_t left = a.extent[3] > elements ? (elements + 63) / 64 * 64 : elements;
    for (size_t axis = 4; axis-- > 0;) along(axis, left);
    return b;
  }
  // Lines of axis 3, for each of some blocks along x's axis (ops/strided_copy.cuh).
  constexpr int64_t kLine = 128, kSide = 64;
  b[3] = std::min<int64_t>(a.extent[3], kLine / ir::size_of(copy.out.dtype));
  const int64_t blocks = std::max<int64_t>(1, elements / (kSide * b[3]));
  b[*turned] = std::min<int64_t>(a.extent[*turned], kSide * blocks);
  int64_t left = elements / (b[3] * b[*turned]);
  for (size_t axis = 3; axis-- > 0;)
    if (axis != *turned) along(axis, left);
  return b;
}

std::vector<ir::Param> parameters(TileContext& c, const StridedCopy& copy, const Axes& a,
                                  const std::array<int64_t, 4>& b) {
  // Contiguous along axis `along` in x, and along axis 3 in y.
  const std::optional<size_t> turned = a.turned();
  const size_t along = turned.value_or(3);
  std::vector<int64_t> of_x = {copy.in_unit * copy.in_offset.constant().value_or(1),
                               a.extent[along], b[along]},
                       of_y = {copy.out_unit * copy.out_offset.constant().value_or(1), a.extent[3],
                               b[3]};
  if (along == 3) of_x.push_back(a.given);
  if (along == 0 && !a.rows.is_constant()) of_x.push_back(1);
  for (size_t i = 0; i < 4; ++i) {
    if (i != along) of_x.push_back(a.in[i]);
    if (i != 3) of_y.push_back(a.out[i]);
  }
  const bool contiguous = (a.in[3] == 1 && a.out[3] == 1) || a.extent[3] == 1;
  int64_t V = 1, VT = 1;
  if (turned) {
    V = vector_width({copy.out.dtype}, of_y);
    VT = vector_width({copy.in.dtype}, of_x);
  } else if (contiguous) {
    const int64_t wide = vector_width({copy.out.dtype}, of_y), size = ir::size_of(copy.out.dtype);
    of_x.insert(of_x.end(), of_y.begin(), of_y.end());
    V = vector_width({copy.in.dtype, copy.out.dtype}, of_x);
    // Words of x whose 16-bit elements aren't aligned with the stores are shifted.
    constexpr int64_t kStored = 16;  // bytes
    if (copy.in.dtype == copy.out.dtype && size == 2 && wide * size == kStored && V < wide)
      VT = wide;
  }
  std::vector<ir::Param> p = {{"X", copy.in.dtype}, {"Y", copy.out.dtype}, c.value("rows", a.rows)};
  const auto four = [&](const char* prefix, const std::array<int64_t, 4>& n, size_t from) {
    for (size_t i = from; i < 4; ++i) p.push_back({fmt::format("{}{}", prefix, i), n[i]});
  };
  four("E", a.extent, 1);
  four("B", b, 0);
  four("in", a.in, 0);
  four("out", a.out, 0);
  p.push_back(c.value("in_offset", copy.in_offset));
  p.push_back({"in_unit", copy.in_unit});
  p.push_back(c.value("out_offset", copy.out_offset));
  p.push_back({"out_unit", copy.out_unit});
  p.push_back({"V", V});
  p.push_back({"S3", a.given});
  p.push_back({"turned", turned ? static_cast<int64_t>(*turned) : int64_t{-1}});
  p.push_back({"VT", VT});
  return p;
}

}  // namespace

std::vector<int64_t> row_major(const ir::Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * *shape[i].constant();
  return strides;
}

Cut choose_strided(const TileContext& c, int64_t total) {
  return {.tile = {tile_elements(total, c.machine().sms)}};
}
Cut choose_strided(const TileContext& c) {
  int64_t in = 0, out = 0;
  for (ir::TensorId t : c.op().in) in = std::max(in, c.mat(t).max_elements());
  for (ir::TensorId t : c.op().out) out = std::max(out, c.mat(t).max_elements());
  return choose_strided(c, std::min(in, out));
}

void tile_strided_copy(TileContext& c, const StridedCopy& copy) {
  const Offset from = resolve_offset(c, copy.in_offset, copy.in_unit);
  Offset to = resolve_offset(c, copy.out_offset, copy.out_unit);
  const Axes a = normalize(c, copy, to.spread > 0);
  std::optional<uint32_t> first;  // of the rows that are written: in Program::values
  if (to.spread > 0) first = rows_from(c, copy, a);
  if (first) to = {};
  const std::array<int64_t, 4> b = choose_blocks(c, copy, a, to.spread > 0);
  const ir::CallId call =
      c.call("strided_copy", parameters(c, copy, a, b), {copy.in.buffer, copy.out.buffer});
  int64_t tiles = 1;
  for (size_t i = 0; i < 4; ++i) tiles *= tiles_of(a.extent[i], b[i]);
  c.announce(tiles);
  uint32_t tile = 0;
  for (int64_t i = 0; i < a.extent[0]; i += b[0])
    for (int64_t j = 0; j < a.extent[1]; j += b[1])
      for (int64_t k = 0; k < a.extent[2]; k += b[2])
        for (int64_t l = 0; l < a.extent[3]; l += b[3]) {
          const Box box = {{i, j, k, l},
                           {std::min(i + b[0], a.extent[0]), std::min(j + b[1], a.extent[1]),
                            std::min(k + b[2], a.extent[2]), std::min(l + b[3], a.extent[3])}};
          Box given = box;  // at least one element, which may be read in vain
          given.lo[3] = std::min(l, a.given - 1);
          given.hi[3] = std::clamp(box.hi[3], given.lo[3] + 1, a.given);
          const ir::Region source = strided_region(copy.in, given, a.in, from, c.world());
          ir::Region target = strided_region(copy.out, box, a.out, to, c.world());
          target.from = first;
          const bool all = !copy.partial && to.spread == 0 && !first &&
                           (target.r1 - target.r0) * (target.c1 - target.c0) == box.count();
          c.task(call, tile++, {read(source), all ? write(target) : may_write(target)});
        }
}

}  // namespace maco::ops
