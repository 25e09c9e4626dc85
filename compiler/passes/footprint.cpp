#include "compiler/passes/footprint.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace maco::passes {

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Drops every other edge except the first and the last.
void thin(std::vector<int64_t>& edges) {
  size_t kept = 0;
  for (size_t i = 0; i < edges.size(); ++i)
    if (i % 2 == 0 || i + 1 == edges.size()) edges[kept++] = edges[i];
  edges.resize(kept);
}

// The intervals between `edges` that [begin, end) touches.
std::pair<uint32_t, uint32_t> between(const std::vector<int64_t>& edges, int64_t begin,
                                      int64_t end) {
  if (begin >= edges.back() || end <= edges.front() || begin >= end) return {0, 0};
  const auto above = std::upper_bound(edges.begin(), edges.end(), begin);
  const auto lo = above - edges.begin() - 1;
  // Mostly the next edge.
  const auto hi =
      (above == edges.end() || *above >= end ? above : std::lower_bound(above, edges.end(), end)) -
      edges.begin();
  return {static_cast<uint32_t>(std::max<std::ptrdiff_t>(lo, 0)),
          static_cast<uint32_t>(std::min<std::ptrdiff_t>(hi, std::ssize(edges) - 1))};
}

}  // namespace

Box box_of(const ir::Program& program, const ir::Region& region) {
  const int64_t size = ir::size_of(program[region.buffer].dtype);
  Box box;
  box.pitch = region.pitch * size;
  box.r0 = region.r0, box.r1 = region.r1;
  box.c0 = region.c0 * size, box.c1 = region.c1 * size;
  const ir::Block& block = region.block;
  if (!block.moves()) {
    const ir::Interval shift = ir::shift_of(program, region, 0);
    box.r0 += shift.lo, box.r1 += shift.hi;
    if (region.from) box.from = *region.from, box.spread = shift.hi - shift.lo;
    return box;
  }
  const ir::Interval rows = block.value ? program.values[*block.value].range
                                        : ir::Interval{.lo = block.rows, .hi = block.rows};
  box.step = rows.lo, box.last_step = rows.hi;
  box.world = program.world;
  box.turn = ir::resolve(block.ref, 0, static_cast<int>(program.world)).front();
  if (block.value && rows.lo >= 0 && box.r0 >= 0 && box.r1 <= rows.hi) box.height = *block.value;
  return box;
}

Box on_rank(const Box& box, int64_t rank) {
  const int64_t block = (rank + box.turn) % box.world;
  return {box.pitch, box.r0 + block * box.step, box.r1 + block * box.last_step, box.c0, box.c1};
}

Box on_all_ranks(const Box& box, int64_t world) {
  if (!box.moves()) return box;
  const int64_t last = world - 1;
  return {box.pitch, box.r0 + std::min<int64_t>(last * box.step, 0),
          box.r1 + std::max<int64_t>(last * box.last_step, 0), box.c0, box.c1};
}

bool are_apart(std::vector<Box> boxes) {
  std::sort(boxes.begin(), boxes.end(),
            [](const Box& a, const Box& b) { return std::tie(a.r0, a.c0) < std::tie(b.r0, b.c0); });
  // Scans from above: for each column the last box that covers it, stored at the first column that
  // is left of it.
  struct Last {
    int64_t c1, r1;
  };
  std::map<int64_t, Last> last;
  for (const Box& b : boxes) {
    if (b.pitch != boxes.front().pitch) return false;
    auto at = last.lower_bound(b.c0);
    if (at != last.begin() && std::prev(at)->second.c1 > b.c0) --at;
    while (at != last.end() && at->first < b.c1) {
      const auto [c0, above] = *at;
      if (above.r1 > b.r0) return false;
      at = last.erase(at);
      if (c0 < b.c0) last.emplace(c0, Last{b.c0, above.r1});
      if (above.c1 > b.c1) at = last.emplace(b.c1, above).first;
    }
    last.emplace(b.c0, Last{b.c1, b.r1});
  }
  return true;
}

bool meet(const Placed& a, const Placed& b) {
  const int64_t shift = b.address - a.address;
  if (a.box.end() <= b.box.begin() + shift || b.box.end() + shift <= a.box.begin()) return false;
  if (a.box.pitch != b.box.pitch || shift % a.box.pitch != 0) return true;
  const int64_t rows = shift / a.box.pitch;
  return a.box.r0 < b.box.r1 + rows && b.box.r0 + rows < a.box.r1 && a.box.c0 < b.box.c1 &&
         b.box.c0 < a.box.c1;
}

bool have_same_blocks(const Box& a, const Box& b) {
  return a.pitch == b.pitch &&
         ((a.height >= 0 && a.height == b.height) || (a.from >= 0 && a.from == b.from));
}

bool meet_in_block(const Box& a, const Box& b) {
  return a.turn == b.turn && a.r0 < b.r1 - b.spread && b.r0 < a.r1 - a.spread && a.c0 < b.c1 &&
         b.c0 < a.c1;
}

Footprint::Footprint(const ir::Program& program, ir::BufferId buffer, ir::AccessKind kind,
                     int64_t address, std::vector<Member> members)
    : buffer_(buffer), kind_(kind), address_(address), pitch_(members.front().box.pitch) {
  const auto less = [](const Member& a, const Member& b) {
    return std::tie(a.box, a.task) < std::tie(b.box, b.task);
  };
  if (!std::is_sorted(members.begin(), members.end(), less))
    std::sort(members.begin(), members.end(), less);
  for (const Member& m : members) {
    if (boxes_.empty() || boxes_.back() != m.box) {
      boxes_.push_back(m.box);
      first_.push_back(static_cast<uint32_t>(tasks_.size()));
      moves_ = moves_ || (m.box.moves() && m.box.height < 0);
      begins_at_value_ = begins_at_value_ || m.box.from >= 0;
    } else if (tasks_.back() == m.task) {
      continue;
    }
    tasks_.push_back(m.task);
  }
  first_.push_back(static_cast<uint32_t>(tasks_.size()));
  seen_.assign(boxes_.size(), 0);
  cut(program.world);
  begin_ = address_ + rows_.front() * pitch_ + cols_.front();
  end_ = address_ + (rows_.back() - 1) * pitch_ + cols_.back();
}

void Footprint::cut(int64_t world) {
  for (const Box& b : boxes_) {
    const Box all = on_all_ranks(b, world);
    for (int64_t r : {all.r0, all.r1}) rows_.push_back(r);
    for (int64_t c : {all.c0, all.c1}) cols_.push_back(c);
  }
  for (std::vector<int64_t>* edges : {&rows_, &cols_}) {
    std::sort(edges->begin(), edges->end());
    edges->erase(std::unique(edges->begin(), edges->end()), edges->end());
  }
  const size_t most = 8 * boxes_.size() + 64;
  while (cell_count() > most || !fill(world, most))
    thin(rows_.size() > cols_.size() ? rows_ : cols_);
}

// Lists the classes of each cell. Gives up if that takes more than `most` entries.
bool Footprint::fill(int64_t world, size_t most) {
  std::vector<Range> ranges;
  size_t entries = 0;
  for (const Box& b : boxes_) {
    ranges.push_back(cells({on_all_ranks(b, world), address_}));
    const Range& range = ranges.back();
    entries += size_t{range.r1 - range.r0} * (range.c1 - range.c0);
    if (entries > most && cell_count() > 1) return false;
  }
  cell_first_.assign(cell_count() + 1, 0);
  const auto each = [&](const auto& visit) {
    for (uint32_t k = 0; k < ranges.size(); ++k)
      for (uint32_t r = ranges[k].r0; r < ranges[k].r1; ++r)
        for (uint32_t c = ranges[k].c0; c < ranges[k].c1; ++c) visit(k, r * columns() + c);
  };
  each([&](uint32_t, size_t cell) { ++cell_first_[cell + 1]; });
  for (size_t i = 1; i < cell_first_.size(); ++i) cell_first_[i] += cell_first_[i - 1];
  cell_classes_.resize(entries);
  std::vector<uint32_t> next = cell_first_;
  each([&](uint32_t k, size_t cell) { cell_classes_[next[cell]++] = k; });
  return true;
}

Footprint::Range Footprint::cells(const Placed& other) const {
  const int64_t shift = other.address - address_;
  const Box& box = other.box;
  int64_t r0, r1, c0 = box.c0, c1 = box.c1;
  if (box.pitch == pitch_ && shift % pitch_ == 0) {
    r0 = box.r0 + shift / pitch_, r1 = box.r1 + shift / pitch_;
  } else {
    const int64_t begin = box.begin() + shift, end = box.end() + shift;
    r0 = floor_div(begin, pitch_), r1 = floor_div(end - 1, pitch_) + 1;
    c0 = r1 - r0 == 1 ? begin - r0 * pitch_ : 0;
    c1 = r1 - r0 == 1 ? end - r0 * pitch_ : pitch_;
  }
  const auto [row, row_end] = between(rows_, r0, r1);
  const auto [col, col_end] = between(cols_, c0, c1);
  return {row, row_end, col, col_end};
}

Footprint::Range Footprint::widened(Range range, uint32_t unit) const {
  const auto up = [&](uint32_t at, size_t edges) {
    return static_cast<uint32_t>(
        std::min<uint64_t>((uint64_t{at} + unit - 1) / unit * unit, edges - 1));
  };
  return {range.r0 / unit * unit, up(range.r1, rows_.size()), range.c0 / unit * unit,
          up(range.c1, cols_.size())};
}

}  // namespace maco::passes
