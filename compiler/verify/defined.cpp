// The list of tasks is what a Program means; that every execution means the same is for the proof
// of races to show.
//
// A buffer is cut into cells by the bounds of all that is written of it, so that each write fills
// whole cells. A cell knows the ranks on which it has been written. Where dims decide how many rows
// there are, regions are those of the most rows: what is written and what is read is cut alike.
// Rows of a buffer that is written in blocks of a height that only the launch knows may be those of
// any cell that could come to lie there.
#include "compiler/verify/defined.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/ranks.h"

namespace maco::verify {
namespace {

using ir::BufferKind;
using ir::id_of;
using ir::RankRef;
using ir::Region;
using ir::TaskId;

/// Rows [r0, r1) by columns [c0, c1) of a buffer that is seen with some pitch.
struct Part {
  int64_t r0 = 0, r1 = 0, c0 = 0, c1 = 0;
  bool empty() const { return r0 >= r1 || c0 >= c1; }
};

constexpr int64_t kMostRuns = 1 << 24;

class Cells {
 public:
  /// Pass one: what will be written.
  void announce(const Part& part, int64_t pitch) {
    if (pitch_ == 0) pitch_ = pitch;
    mixed_ = mixed_ || pitch != pitch_;
    rows_.insert(rows_.end(), {part.r0, part.r1});
    columns_.insert(columns_.end(), {part.c0, part.c1});
    runs_ += part.r1 - part.r0;
    ++writes_;
  }
  /// Whether the cells have to be those of the buffer as one row: then all writes are announced
  /// again, row by row.
  bool flattens() {
    unique(rows_);
    unique(columns_);
    // Writes that form no grid would cut each other to pieces.
    const bool pieces = rows_.size() * columns_.size() > 16 * writes_ + 4096 &&
                        rows_.size() * columns_.size() > 4 * static_cast<size_t>(runs_);
    if (!mixed_ && !pieces) return false;
    flat_ = true;
    rows_ = {0, 1};
    columns_.clear();
    // Too many to be followed: nothing is known to be written.
    return runs_ <= kMostRuns;
  }
  void announce_flat(const Part& part, int64_t pitch) {
    for (int64_t r = part.r0; r < part.r1; ++r)
      columns_.insert(columns_.end(), {r * pitch + part.c0, r * pitch + part.c1});
  }
  void begin(int64_t elements, uint64_t world) {
    unique(columns_);
    elements_ = elements;
    world_ = world;
    if (flat_) pitch_ = elements;
    if (rows_.size() < 2 || columns_.size() < 2) return;
    cells_.assign((rows_.size() - 1) * (columns_.size() - 1), 0);
    open_ = cells_.size();
    all_ = rows_.front() == 0 && columns_.front() == 0 && columns_.back() == pitch_ &&
           rows_.back() * pitch_ >= elements;
  }

  void write(const Part& part, int64_t pitch, uint64_t ranks) {
    if (open_ == 0) return;
    if (!flat_) return fill(part, ranks);
    for (int64_t r = part.r0; r < part.r1; ++r)
      fill({0, 1, r * pitch + part.c0, r * pitch + part.c1}, ranks);
  }
  /// Part of what is read that isn't there on all of these ranks, with `pitch`.
  std::optional<Part> missing(const Part& part, int64_t pitch, uint64_t ranks) const {
    if (whole()) return std::nullopt;
    if (cells_.empty()) return part;
    if (!flat_ && pitch == pitch_) return hole(part, ranks);
    for (int64_t r = part.r0; r < part.r1; ++r) {
      // A row may be several here.
      const int64_t start = r * pitch + part.c0, end = r * pitch + part.c1;
      for (int64_t at = start; at < end;) {
        const int64_t row = at / pitch_, stop = std::min(end, (row + 1) * pitch_);
        if (const auto h = hole({row, row + 1, at - row * pitch_, stop - row * pitch_}, ranks))
          return Part{r, r + 1, row * pitch_ + h->c0 - r * pitch, row * pitch_ + h->c1 - r * pitch};
        at = stop;
      }
    }
    return std::nullopt;
  }

  /// Whether all of it is there on all ranks.
  bool whole() const { return all_ && open_ == 0; }
  /// Where rows of cells begin, and the last ones end.
  const std::vector<int64_t>& row_bounds() const { return rows_; }
  /// The cells' pitch, if they see the buffer as rows.
  std::optional<int64_t> pitch() const {
    return flat_ || cells_.empty() ? std::nullopt : std::optional(pitch_);
  }

 private:
  static void unique(std::vector<int64_t>& list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  static size_t place(const std::vector<int64_t>& cuts, int64_t at) {
    return static_cast<size_t>(std::upper_bound(cuts.begin(), cuts.end(), at) - cuts.begin()) - 1;
  }
  uint64_t& cell(size_t row, size_t column) { return cells_[row * (columns_.size() - 1) + column]; }
  void fill(const Part& part, uint64_t ranks) {
    const size_t last = place(columns_, part.c1 - 1);
    for (size_t r = place(rows_, part.r0); r < rows_.size() - 1 && rows_[r] < part.r1; ++r)
      for (size_t c = place(columns_, part.c0); c <= last; ++c) {
        uint64_t& there = cell(r, c);
        const bool was = there == world_;
        there |= ranks & world_;
        if (!was && there == world_) --open_;
      }
  }
  std::optional<Part> hole(const Part& part, uint64_t ranks) const {
    for (int64_t row = part.r0; row < part.r1;) {
      if (row < rows_.front()) return Part{row, std::min(part.r1, rows_.front()), part.c0, part.c1};
      if (row >= rows_.back()) return Part{row, part.r1, part.c0, part.c1};
      const size_t r = place(rows_, row);
      const int64_t next = std::min(part.r1, rows_[r + 1]);
      for (int64_t column = part.c0; column < part.c1;) {
        if (column < columns_.front())
          return Part{row, next, column, std::min(part.c1, columns_.front())};
        if (column >= columns_.back()) return Part{row, next, column, part.c1};
        const size_t c = place(columns_, column);
        const int64_t stop = std::min(part.c1, columns_[c + 1]);
        if (ranks & ~cells_[r * (columns_.size() - 1) + c]) return Part{row, next, column, stop};
        column = stop;
      }
      row = next;
    }
    return std::nullopt;
  }

  std::vector<int64_t> rows_, columns_;  // where cells begin, and the last ones end
  std::vector<uint64_t> cells_;          // by row and column: the ranks that have written it
  int64_t pitch_ = 0, elements_ = 0, runs_ = 0;
  size_t writes_ = 0;
  size_t open_ = 0;  // cells that aren't written on all ranks yet
  uint64_t world_ = 0;
  bool mixed_ = false, flat_ = false;
  bool all_ = false;  // the cells are the whole buffer
};

class Defined {
 public:
  Defined(const ir::Program& program, Reporter& reporter)
      : p_(program),
        report_(reporter),
        world_(static_cast<int>(program.world)),
        all_ranks_(ir::all_ranks(world_)),
        cells_(program.buffers.size()),
        heights_(program.buffers.size()) {}

  void run() {
    each_write([&](const Region& r, const Part& part, uint64_t) {
      cells_[index(r.buffer)].announce(part, r.pitch);
      std::optional<Height>& height = heights_[index(r.buffer)];
      if (!r.block.value) return;
      const Height own{*r.block.value, true};
      height = !height || *height == own ? own : Height{0, false};
    });
    std::vector<bool> flat(cells_.size());
    for (size_t b = 0; b < cells_.size(); ++b) flat[b] = cells_[b].flattens();
    if (std::find(flat.begin(), flat.end(), true) != flat.end())
      each_write([&](const Region& r, const Part& part, uint64_t) {
        if (flat[index(r.buffer)]) cells_[index(r.buffer)].announce_flat(part, r.pitch);
      });
    for (size_t b = 0; b < cells_.size(); ++b)
      cells_[b].begin(p_.buffers[b].max_elements(), all_ranks_);

    for (size_t t = 0; t < p_.tasks.size(); ++t) {
      for (const ir::Access& a : p_.tasks[t].accesses)
        if (!a.writes() && written_here(a.region)) read(id_of<TaskId>(t), a.region);
      for (const ir::Access& a : p_.tasks[t].accesses)
        if (is_write(a))
          each_part(p_.tasks[t], a.region, [&](const Part& part, uint64_t ranks) {
            cells_[index(a.region.buffer)].write(part, a.region.pitch, ranks);
          });
    }
    for (size_t b = 0; b < cells_.size(); ++b) output(b);
  }

 private:
  /// Whether nothing is in the buffer when a launch begins.
  bool written_here(const Region& r) const {
    const BufferKind kind = p_[r.buffer].kind;
    return kind == BufferKind::Temp || kind == BufferKind::Output;
  }
  /// Where dims decide which part of a region is written, all of it counts.
  bool is_write(const ir::Access& a) const { return a.writes() && written_here(a.region); }

  /// Calls f(part, ranks) for what a region is on which ranks.
  template <class F>
  void each_part(const ir::Task& task, const Region& r, F f) const {
    const auto at = [&](int64_t block) {
      const int64_t high = r.block.value ? p_.values[*r.block.value].range.hi : r.block.rows;
      return Part{block * high + r.r0, block * high + r.r1, r.c0, r.c1};
    };
    const uint64_t ranks = task.ranks & all_ranks_;
    if (ranks == 0 || at(0).empty()) return;
    if (!r.block.any()) return f(at(0), ranks);
    const RankRef ref = r.block.ref;
    for (int block = 0; block < world_; ++block) {
      const uint64_t own = uint64_t{1} << block;
      uint64_t named = 0;  // the ranks that name this block
      switch (ref.kind) {
        case RankRef::Kind::Self: named = own; break;
        case RankRef::Kind::Others: named = all_ranks_ & ~own; break;
        case RankRef::Kind::All: named = all_ranks_; break;
        case RankRef::Kind::Rank: named = ref.n == block ? all_ranks_ : 0; break;
        case RankRef::Kind::Shift:
          for (int rank = 0; rank < world_; ++rank)
            if (resolve(ref, rank, world_).front() == block) named |= uint64_t{1} << rank;
          break;
      }
      if (named & ranks) f(at(block), named & ranks);
    }
  }
  template <class F>
  void each_write(F f) const {
    for (const ir::Task& t : p_.tasks)
      for (const ir::Access& a : t.accesses)
        if (is_write(a))
          each_part(t, a.region,
                    [&](const Part& part, uint64_t ranks) { f(a.region, part, ranks); });
  }

  void read(TaskId task, const Region& r) {
    const Cells& cells = cells_[index(r.buffer)];
    const uint64_t ranks = p_[task].ranks & all_ranks_;
    if (ranks == 0) return;
    if (heights_[index(r.buffer)] && !r.block.value) return read_any_height(task, r, ranks);
    bool told = false;
    each_part(p_[task], r, [&](const Part& part, uint64_t on) {
      if (told) return;
      const auto hole = cells.missing(part, r.pitch, on);
      if (!hole) return;
      told = true;
      fail(task, r, *hole, r.pitch);
    });
  }
  /// A read of rows that blocks of some height come to lie in.
  void read_any_height(TaskId task, const Region& r, uint64_t ranks) {
    const size_t buffer = index(r.buffer);
    const Cells& cells = cells_[buffer];
    const ir::Buffer& b = p_[r.buffer];
    const Height height = *heights_[buffer];
    if (cells.whole()) return;
    const std::optional<int64_t> pitch = cells.pitch();
    if (!height.known || r.block.any() || !pitch) {
      if (const auto part = cells.missing({0, b.max_rows, 0, b.cols}, b.cols, ranks))
        fail(task, r, *part, b.cols);
      return;
    }
    Part part{r.r0, r.r1, r.c0, r.c1};
    // A region of another pitch counts as all rows that it may touch.
    if (r.pitch != *pitch)
      part = {(r.r0 * r.pitch + r.c0) / *pitch, ((r.r1 - 1) * r.pitch + r.c1 + *pitch - 1) / *pitch,
              0, *pitch};
    const ir::Interval range = p_.values[height.value].range;
    if (range.hi < 1) return;
    // Cells, those that nobody writes included, each within a block.
    std::vector<int64_t> bounds = cells.row_bounds();
    bounds.push_back(b.max_rows);
    for (int64_t row = 0; row < b.max_rows; row += range.hi) bounds.push_back(row);
    std::sort(bounds.begin(), bounds.end());
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const int64_t r0 = bounds[i], r1 = bounds[i + 1];
      if (r0 == r1) continue;
      // Rows [first, last) of this block, which begins at row block x height.
      const int64_t block = r0 / range.hi, first = r0 - block * range.hi, last = first + r1 - r0;
      const int64_t lowest = block * std::max(range.lo, first + 1) + first,
                    highest = block * range.hi + last;
      if (highest <= part.r0 || lowest >= part.r1) continue;
      if (const auto hole = cells.missing({r0, r1, part.c0, part.c1}, *pitch, ranks))
        return fail(task, r, *hole, *pitch);
    }
  }
  /// Names the first rank that lacks it.
  int lacking(size_t buffer, const Part& part, int64_t pitch, uint64_t ranks) const {
    for (int rank = 0; rank < world_; ++rank)
      if ((ranks >> rank & 1) && cells_[buffer].missing(part, pitch, uint64_t{1} << rank))
        return rank;
    return 0;
  }
  std::string text(size_t buffer, const Part& part, int64_t pitch) const {
    Region r;
    r.buffer = id_of<ir::BufferId>(buffer);
    r.pitch = pitch;
    r.r0 = part.r0, r.r1 = part.r1, r.c0 = part.c0, r.c1 = part.c1;
    return to_string(p_, r, 0);
  }
  void fail(TaskId task, const Region& r, const Part& hole, int64_t pitch) {
    const size_t b = index(r.buffer);
    report_.error(task,
                  fmt::format("order: {} reads {} before any task of the list writes it on rank {}",
                              describe(p_, task), text(b, hole, pitch),
                              lacking(b, hole, pitch, p_[task].ranks)));
  }
  void output(size_t buffer) {
    const ir::Buffer& b = p_.buffers[buffer];
    if (b.kind != BufferKind::Output) return;
    if (const auto hole = cells_[buffer].missing({0, b.max_rows, 0, b.cols}, b.cols, all_ranks_))
      report_.error(fmt::format("order: no task writes output {} on rank {}",
                                text(buffer, *hole, b.cols),
                                lacking(buffer, *hole, b.cols, all_ranks_)));
  }

  const ir::Program& p_;
  Reporter& report_;
  const int world_;
  const uint64_t all_ranks_;
  /// The height of blocks, which only a launch knows: Program::values[value], unless they differ.
  struct Height {
    uint32_t value = 0;
    bool known = false;
    friend bool operator==(const Height&, const Height&) = default;
  };
  std::vector<Cells> cells_;                    // by buffer
  std::vector<std::optional<Height>> heights_;  // by buffer: of the blocks that are written
};

}  // namespace

void check_defined(const ir::Program& program, Reporter& reporter) {
  Defined(program, reporter).run();
  reporter.summarise("such errors");
}

}  // namespace maco::verify
