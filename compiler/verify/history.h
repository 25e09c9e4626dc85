// Who touched which bytes of a rank's memory, as far as it still matters.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "compiler/verify/regions.h"

namespace maco::verify {

/// All boxes that a Program touches, each once; and which overlap which.
class BoxTable {
 public:
  /// Ids [first, last).
  struct Run {
    uint32_t first, last;
  };

  /// Sorts; `ids[i]` becomes the id of boxes[i].
  /// Answers of overlapping() are kept while they take no more than `most_runs` runs and some a
  /// box.
  BoxTable(const std::vector<Box>& boxes, std::vector<uint32_t>& ids,
           size_t most_runs = size_t{1} << 20);

  size_t size() const { return boxes_.size(); }
  const Box& operator[](uint32_t id) const { return boxes_[id]; }

  /// The boxes that overlap box `id`, itself among them. Valid until the next call.
  struct Runs {
    const Run* first;
    const Run* last;
    const Run* begin() const { return first; }
    const Run* end() const { return last; }
  };
  Runs overlapping(uint32_t id) const;
  /// Appends the boxes that overlap `box`, which needn't be one of them. Without `exact`, it may
  /// append others too, where telling them apart takes long.
  void find(const Box& box, std::vector<Run>& runs, bool exact = true) const;

 private:
  // Boxes of one pitch are rectangles in a matrix of rows that many bytes long, whose first byte is
  // byte 0; one that reaches beyond the end of its rows has columns beyond the pitch. One run of
  // bytes has pitch 0, and is seen in a matrix of one column.
  struct Corner {
    int64_t row = 0, column = 0;
  };
  struct Rectangle {
    int64_t r0 = INT64_MAX, r1 = INT64_MIN, c0 = INT64_MAX, c1 = INT64_MIN;
  };
  // Those of a space and a pitch, by ascending start: rows of tiles one after another, so that a
  // tree over them finds those near a rectangle.
  struct Matrix {
    int32_t space = 0;
    int64_t pitch = 0;
    uint32_t first = 0, last = 0;
    bool wraps = false;  // some box reaches beyond the end of its rows
    size_t leaves = 1;   // of kLeaf boxes
    std::vector<Rectangle> tree, tree_in_space;
  };
  static constexpr uint32_t kLeaf = 8;

  Rectangle rectangle(uint32_t id) const;
  static Rectangle rectangle_in_space(const Box& box);
  template <class Rect>
  static void grow(std::vector<Rectangle>& tree, const Matrix& matrix, const Rect& rectangle);
  static size_t rectangles(const Box& box, int64_t pitch, Rectangle (&parts)[3]);
  template <class Near, class Meets>
  void descend(const Matrix& matrix, const std::vector<Rectangle>& tree, size_t at, size_t first,
               size_t count, const Near& near, const Meets& meets, std::vector<Run>& runs,
               size_t since) const;

  std::vector<Box> boxes_;  // by space, pitch, and start
  std::vector<Corner> corners_;
  std::vector<Matrix> matrices_;
  struct Known {
    uint32_t first = 0, runs = 0;  // of runs_; a box overlaps itself, so that 0 means unknown
  };
  mutable std::vector<Known> known_;  // by box
  mutable std::vector<Run> runs_, scratch_;
  size_t most_runs_;
};

/// An access that a later one may conflict with.
struct Past {
  uint32_t task = 0;
  uint32_t access = 0;  // of the task
  uint32_t number = 0;  // of the task in its stream (Clocks::number)
  uint32_t stream = 0;
  int16_t runner = 0;  // the rank that runs the task
  int16_t launch = 0;
  bool writes = false;
  bool slot = false;
  uint32_t next = 0;  // in the list of its box
};

/// The past accesses of one rank's memory, by box; finds those whose boxes overlap another.
class History {
 public:
  explicit History(const BoxTable& table)
      : table_(&table),
        writes_(table.size()),
        reads_(table.size()),
        reads_added_(table.size(), 0),
        next_cleaning_(table.size(), kFewReads) {}

  void add_write(uint32_t box, const Past& past) { writes_.push(box, allocate(past), pool_); }
  /// `implied(earlier)`: whether `past` says all that this read of the same box does. Such reads
  /// are forgotten, if not at once then before there are more of them than others.
  template <class Implied>
  void add_read(uint32_t box, const Past& past, const Implied& implied) {
    uint32_t* const head = &reads_.head[box];
    while (*head != kNone && implied(pool_[*head])) forget(head);
    if (++reads_added_[box] >= next_cleaning_[box]) {
      uint32_t kept = 0;
      for (uint32_t* link = head; *link != kNone;) {
        if (implied(pool_[*link])) {
          forget(link);
        } else {
          ++kept;
          link = &pool_[*link].next;
        }
      }
      reads_added_[box] = 0;
      next_cleaning_[box] = kept + kFewReads;
    }
    reads_.push(box, allocate(past), pool_);
  }

  /// Calls `visit(box, past)` for the past accesses of every box that overlaps box `query`: the
  /// writes, and if `reads` is set the reads. It returns true if the access may be forgotten.
  template <class Visit>
  void visit(uint32_t query, bool reads, const Visit& visit_past) {
    for (const BoxTable::Run run : table_->overlapping(query)) {
      visit(writes_, run, visit_past);
      if (reads) visit(reads_, run, visit_past);
    }
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr uint32_t kFewReads = 8;

  // The accesses of each box, newest first; and which boxes have any.
  struct Lists {
    explicit Lists(size_t boxes) : head(boxes, kNone), some((boxes + 63) / 64, 0) {}
    void push(uint32_t box, uint32_t id, std::vector<Past>& pool) {
      pool[id].next = head[box];
      head[box] = id;
      some[box / 64] |= uint64_t{1} << box % 64;
    }
    std::vector<uint32_t> head;
    std::vector<uint64_t> some;
  };

  uint32_t allocate(const Past& past) {
    if (free_ == kNone) {
      pool_.push_back(past);
      return static_cast<uint32_t>(pool_.size() - 1);
    }
    const uint32_t id = free_;
    free_ = pool_[id].next;
    pool_[id] = past;
    return id;
  }
  /// Takes the access that `link` leads to out of its list.
  void forget(uint32_t* link) {
    const uint32_t id = *link;
    *link = pool_[id].next;
    pool_[id].next = free_;
    free_ = id;
  }

  template <class Visit>
  void visit(Lists& lists, BoxTable::Run run, const Visit& visit_past) {
    for (uint32_t word = run.first / 64; word <= (run.last - 1) / 64; ++word) {
      uint64_t some = lists.some[word];
      if (word == run.first / 64) some &= ~uint64_t{0} << run.first % 64;
      if (word == (run.last - 1) / 64) some &= ~uint64_t{0} >> (63 - (run.last - 1) % 64);
      for (; some != 0; some &= some - 1) {
        const uint32_t box = word * 64 + static_cast<uint32_t>(std::countr_zero(some));
        uint32_t* link = &lists.head[box];
        while (*link != kNone) {
          if (visit_past(box, pool_[*link]))
            forget(link);
          else
            link = &pool_[*link].next;
        }
        if (lists.head[box] == kNone) lists.some[word] &= ~(uint64_t{1} << box % 64);
      }
    }
  }

  const BoxTable* table_;
  Lists writes_, reads_;
  std::vector<uint32_t> reads_added_;    // by box: since the last cleaning
  std::vector<uint32_t> next_cleaning_;  // by box: the number of reads at which to clean
  std::vector<Past> pool_;
  uint32_t free_ = kNone;
};

}  // namespace maco::verify
