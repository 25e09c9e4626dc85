#include "compiler/verify/regions.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace maco::verify {
namespace {

constexpr int64_t kManyRows = 1024;
constexpr int64_t kMostInSpace = INT32_MAX;  // bytes of a row, and rows, of a box

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}
int64_t down4(int64_t n) { return n / 4 * 4; }
int64_t up4(int64_t n) { return (n + 3) / 4 * 4; }
int64_t up256(int64_t n) { return (n + 255) / 256 * 256; }

Box normal(Box b) {
  if (b.rows <= 0 || b.width <= 0) return {};
  if (b.width == b.pitch) b = {b.start, 0, 1, b.width * b.rows};
  if (b.rows == 1) b.pitch = 0;
  return b;
}

/// Whether bytes [start, start + width) meet a row of `b`.
bool row_meets(int64_t start, int64_t width, const Box& b) {
  if (start + width <= b.start || start >= b.end()) return false;
  if (start <= b.start) return true;
  // It begins in row `row` or in the gap behind it, in which it may also end.
  const int64_t row = (start - b.start) / b.pitch, column = start - b.start - row * b.pitch;
  return column < b.width || (column + width > b.pitch && row + 1 < b.rows);
}

bool bytes_overlap(const Box& a, const Box& b) {
  if (a.start >= b.end() || b.start >= a.end()) return false;
  if (a.rows == 1 && b.rows == 1) return true;
  if (a.rows > 1 && b.rows > 1 && a.pitch != b.pitch) {
    const Box& few = a.rows <= b.rows ? a : b;
    const Box& many = a.rows <= b.rows ? b : a;
    if (few.rows > kManyRows) return true;
    for (int64_t r = 0; r < few.rows; ++r)
      if (row_meets(few.start + r * few.pitch, few.width, many)) return true;
    return false;
  }
  // Row i of a meets row j of b if (i - j) * pitch lies between d - a.width and d + b.width, both
  // excluded.
  const int64_t pitch = std::max(a.pitch, b.pitch), d = b.start - a.start;
  const int64_t least = std::max(-(b.rows - 1), floor_div(d - a.width, pitch) + 1);
  const int64_t most = std::min(a.rows - 1, floor_div(d + b.width - 1, pitch));
  return least <= most;
}

bool bytes_cover(const Box& a, const Box& b) {
  if (a.rows == 1) return a.start <= b.start && b.end() <= a.end();
  if (b.rows > 1 && b.pitch != a.pitch) return false;
  const int64_t d = b.start - a.start;
  if (d < 0) return false;
  return d / a.pitch + b.rows <= a.rows && d % a.pitch + b.width <= a.width;
}

}  // namespace

bool overlap(const Box& a, const Box& b) {
  if (a.space != 0 && a.space == b.space) return bytes_overlap(a.in_space(), b.in_space());
  return bytes_overlap(a, b);
}

bool covers(const Box& a, const Box& b) {
  if (a.space == 0) return bytes_cover(a, b);
  // What overlaps some of b's possible bytes need not overlap those that `a` has.
  return a.space == b.space && bytes_cover(a.in_space(), b.in_space());
}

bool Rest::take(Box whole, Box part) {
  const int32_t space = part.space;
  if (space != 0 && space != whole.space) return false;
  if (!fresh_ && space != space_) return false;
  if (space != 0) {
    whole = whole.in_space();
    part = part.in_space();
  }
  if (whole.rows == 1) {
    const int64_t pitch = fresh_ ? part.pitch : pitch_;
    if (pitch != 0 && whole.width % pitch == 0)
      whole = {whole.start, pitch, whole.width / pitch, pitch};
  }
  if (fresh_) {
    pitch_ = whole.pitch;
    rows_ = whole.rows;
    width_ = whole.width;
    space_ = space;
  }
  if (part.rows > 1 && part.pitch != whole.pitch) return false;
  const int64_t begin = part.start - whole.start;
  if (whole.rows == 1) {
    take_rows(0, begin, 1, part.width);
  } else if (part.rows == 1 && part.width > whole.pitch) {
    // A run over rows: those of which it holds all.
    const int64_t first = -floor_div(-begin, whole.pitch);
    const int64_t last = floor_div(begin + part.width - whole.width, whole.pitch);
    take_rows(first, 0, last - first + 1, whole.width);
  } else {
    // What begins in the gap behind a row may end in the next one.
    const int64_t row = floor_div(begin, whole.pitch), column = begin - row * whole.pitch;
    take_rows(row, column, part.rows, part.width);
    take_rows(row + 1, column - whole.pitch, part.rows, part.width);
  }
  return !fresh_ && left_ == 0;
}

void Rest::take_rows(int64_t row, int64_t column, int64_t rows, int64_t width) {
  const int64_t r0 = std::max<int64_t>(row, 0), r1 = std::min(row + rows, rows_);
  const int64_t c0 = std::max<int64_t>(column, 0), c1 = std::min(column + width, width_);
  if (r0 >= r1 || c0 >= c1) return;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  if (fresh_) {
    cell_rows_ = std::min(rows, rows_);
    cell_width_ = std::min(width, width_);
  }
  const int64_t down = up(rows_, cell_rows_), across = up(width_, cell_width_);
  if (down > 64 || across > 64 || down * across > 64) return;
  if (fresh_) left_ = ~uint64_t{0} >> (64 - down * across);
  fresh_ = false;
  // The last row and column of cells may be smaller.
  const int64_t r_end = r1 == rows_ ? down : r1 / cell_rows_;
  const int64_t c_end = c1 == width_ ? across : c1 / cell_width_;
  for (int64_t r = up(r0, cell_rows_); r < r_end; ++r)
    for (int64_t c = up(c0, cell_width_); c < c_end; ++c)
      left_ &= ~(uint64_t{1} << (r * across + c));
}

Layout::Layout(const ir::Program& program) : program_(program), base_(program.buffers.size(), -1) {
  using ir::BufferKind;
  std::vector<bool> written(program.buffers.size(), false);
  for (const ir::Task& t : program.tasks)
    for (const ir::Access& a : t.accesses)
      if (a.writes()) written[index(a.region.buffer)] = true;
  // Tensors: by the caller's name for them; an internal one is itself.
  std::map<std::string_view, std::pair<int64_t, bool>> tensors;  // bytes, written
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ir::Buffer& b = program.buffers[i];
    if (b.tensor.empty()) continue;
    auto& [bytes, any] = tensors[b.tensor];
    bytes = std::max(bytes, b.bytes());
    any = any || written[i];
  }
  const int64_t symmetric = up256(program.arena_bytes);
  int64_t next = symmetric + up256(program.slots_end());
  std::map<std::string_view, int64_t> bases;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const ir::Buffer& b = program.buffers[i];
    if (b.kind == BufferKind::Temp) {
      base_[i] = *b.offset;
    } else if (b.kind == BufferKind::Slot) {
      base_[i] = symmetric + *b.offset;
    } else if (b.tensor.empty()) {
      if (!written[i]) continue;
      base_[i] = next;
      next += up256(b.bytes());
    } else if (tensors[b.tensor].second) {
      const auto [at, fresh] = bases.emplace(b.tensor, next);
      if (fresh) next += up256(tensors[b.tensor].first);
      base_[i] = at->second;
    }
  }
  find_spaces();
}

/// The space that a region lies in: that of one block, whose rows end where the block does, or of
/// rows from a value on. Slots have blocks of known height.
std::optional<Layout::SpaceKey> Layout::space_of(const ir::Region& r) const {
  using enum ir::RankRef::Kind;
  if (r.from) {
    const int64_t pitch = r.pitch * size_of(program_[r.buffer].dtype);
    if (base_[index(r.buffer)] < 0 || r.r0 < 0 || r.r0 >= r.r1 || r.r1 > kMostInSpace ||
        pitch > kMostInSpace)
      return std::nullopt;
    return SpaceKey{r.buffer, true, *r.from, pitch};
  }
  if (!r.block.value || r.block.ref.kind == Others || r.block.ref.kind == All) return std::nullopt;
  const ir::Buffer& b = program_[r.buffer];
  const ir::Interval height = program_.values[*r.block.value].range;
  const int64_t pitch = r.pitch * size_of(b.dtype);
  if (b.kind == ir::BufferKind::Slot || b.packets || base_[index(r.buffer)] < 0 || height.lo < 0 ||
      r.r0 < 0 || r.r0 >= r.r1 || r.r1 > height.hi || height.hi > kMostInSpace ||
      pitch > kMostInSpace)
    return std::nullopt;
  return SpaceKey{r.buffer, false, *r.block.value, pitch};
}

void Layout::find_spaces() {
  int64_t next = 0;
  std::map<SpaceKey, int64_t> rows;  // of those that begin at a value: the most
  for (const ir::Task& t : program_.tasks)
    for (const ir::Access& a : t.accesses)
      if (const auto key = space_of(a.region); key && key->from)
        rows[*key] = std::max(rows[*key], a.region.r1);
  for (const ir::Task& t : program_.tasks)
    for (const ir::Access& a : t.accesses) {
      const std::optional<SpaceKey> key = space_of(a.region);
      if (!key || spaces_.count(*key)) continue;
      next = (next + key->pitch - 1) / key->pitch * key->pitch;  // rows begin on multiples of it
      spaces_[*key] = {static_cast<int32_t>(spaces_.size() + 1), next};
      next += key->pitch *
              (key->from ? rows[*key] : program_.values[key->value].range.hi * program_.world);
    }
}

void Layout::place_in_space(const ir::Region& r, int runner, Box& box) const {
  const std::optional<SpaceKey> key = space_of(r);
  if (!key) return;
  const Space& space = spaces_.at(*key);
  const int64_t size = size_of(program_[r.buffer].dtype);
  const int64_t first =
      key->from ? 0
                : resolve(r.block.ref, runner, static_cast<int>(program_.world)).front() *
                      program_.values[key->value].range.hi;
  box.space = space.number;
  box.start_in_space = space.base + (first + r.r0) * key->pitch + r.c0 * size;
  box.pitch_in_space = static_cast<int32_t>(key->pitch);
  box.rows_in_space = static_cast<int32_t>(r.r1 - r.r0);
  box.width_in_space = static_cast<int32_t>((r.c1 - r.c0) * size);
}

Box Layout::box(const ir::Region& r, int runner, int64_t copy) const {
  const ir::Buffer& b = program_[r.buffer];
  const ir::Interval shift = shift_of(program_, r, runner);
  const int64_t base = base_[index(r.buffer)] + (copy > 0 ? copy * b.copy_bytes() : 0);
  const int64_t size = size_of(b.dtype), first = r.r0 + shift.lo, rows = r.r1 + shift.hi - first;
  if (rows <= 0 || r.c1 <= r.c0) return {};
  if (!b.packets) {
    Box box = normal(
        {base + (first * r.pitch + r.c0) * size, r.pitch * size, rows, (r.c1 - r.c0) * size});
    if (!spaces_.empty()) place_in_space(r, runner, box);
    return box;
  }
  // Rows of packets begin on a packet of their own; check_structure has seen that the pitch is the
  // buffer's.
  const int64_t from = down4(r.c0 * size), to = up4(r.c1 * size), pitch = up4(b.cols * size) * 2;
  return normal({base + first * pitch + from * 2, pitch, rows, (to - from) * 2});
}

}  // namespace maco::verify
