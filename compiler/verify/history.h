// Who touched which bytes of a rank's memory, as far as it still matters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compiler/verify/regions.h"

namespace maco::verify {

/// All boxes that a Program touches, each once, by ascending start.
class BoxTable {
 public:
  /// Sorts; `ids[i]` becomes the id of boxes[i].
  BoxTable(const std::vector<Box>& boxes, std::vector<uint32_t>& ids) {
    std::vector<uint32_t> order(boxes.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return boxes[a] != boxes[b] ? boxes[a] < boxes[b] : a < b;
    });
    ids.resize(boxes.size());
    for (uint32_t i : order) {
      if (boxes_.empty() || boxes_.back() != boxes[i]) boxes_.push_back(boxes[i]);
      ids[i] = static_cast<uint32_t>(boxes_.size() - 1);
    }
    for (const Box& b : boxes_)
      corners_.push_back(b.rows > 1 ? Corner{b.start / b.pitch, b.start % b.pitch} : Corner{});
  }
  size_t size() const { return boxes_.size(); }
  const Box& operator[](uint32_t id) const { return boxes_[id]; }
  /// overlap(boxes a, b); most are tiles of the same matrix, and are compared as such.
  bool overlaps(uint32_t a, uint32_t b) const {
    const Box &x = boxes_[a], &y = boxes_[b];
    const Corner &u = corners_[a], &v = corners_[b];
    if (x.pitch != y.pitch && x.pitch != 0 && y.pitch != 0) return known_overlap(a, b);
    if (x.pitch != y.pitch || x.pitch == 0 || u.column + x.width > x.pitch ||
        v.column + y.width > y.pitch)
      return overlap(x, y);
    return u.row < v.row + y.rows && v.row < u.row + x.rows && u.column < v.column + y.width &&
           v.column < u.column + x.width;
  }

 private:
  struct Corner {
    int64_t row = 0,
            column = 0;  // of the first byte, where rows of the box's pitch are counted from byte 0
  };
  /// Views of different pitch take a look at every row: the last answers are kept.
  bool known_overlap(uint32_t a, uint32_t b) const {
    const uint64_t key = (uint64_t{std::min(a, b)} << 32 | std::max(a, b)) + 1;
    uint64_t& slot = answers_[(key * 0x9e3779b97f4a7c15u) >> 48];
    if (slot >> 1 != key) slot = key << 1 | (overlap(boxes_[a], boxes_[b]) ? 1 : 0);
    return (slot & 1) != 0;
  }

  std::vector<Box> boxes_;
  std::vector<Corner> corners_;
  mutable std::vector<uint64_t> answers_ = std::vector<uint64_t>(1 << 16, 0);
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
  explicit History(const BoxTable& table) : table_(&table), head_(table.size(), kNone) {
    while (leaves_ < table.size()) leaves_ *= 2;
    ends_.assign(2 * leaves_, kEmpty);
  }

  void add(uint32_t box, Past past) {
    if (free_ == kNone) {
      free_ = static_cast<uint32_t>(pool_.size());
      pool_.push_back({});
      pool_.back().next = kNone;
    }
    const uint32_t at = free_;
    free_ = pool_[at].next;
    past.next = head_[box];
    pool_[at] = past;
    if (head_[box] == kNone) set(box, (*table_)[box].end());
    head_[box] = at;
  }

  /// Calls `visit(box, past)` for the past accesses of every box that overlaps box `query`; it
  /// returns true if the access may be forgotten.
  template <class Visit>
  void visit(uint32_t query, const Visit& visit_past) {
    descend(1, 0, leaves_, query, visit_past);
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr int64_t kEmpty = -1;

  template <class Visit>
  void descend(size_t at, size_t first, size_t count, uint32_t query, const Visit& visit_past) {
    const Box& q = (*table_)[query];
    if (ends_[at] <= q.start || first >= table_->size() ||
        (*table_)[static_cast<uint32_t>(first)].start >= q.end())
      return;
    if (count > 1) {
      descend(2 * at, first, count / 2, query, visit_past);
      descend(2 * at + 1, first + count / 2, count / 2, query, visit_past);
      return;
    }
    const auto box = static_cast<uint32_t>(first);
    if (!table_->overlaps(box, query)) return;
    uint32_t* link = &head_[box];
    while (*link != kNone) {
      const uint32_t id = *link;
      if (visit_past(box, pool_[id])) {
        *link = pool_[id].next;
        pool_[id].next = free_;
        free_ = id;
      } else {
        link = &pool_[id].next;
      }
    }
    if (head_[box] == kNone) set(box, kEmpty);
  }

  void set(uint32_t box, int64_t end) {
    size_t at = leaves_ + box;
    ends_[at] = end;
    while (at > 1) {
      at /= 2;
      ends_[at] = std::max(ends_[2 * at], ends_[2 * at + 1]);
    }
  }

  const BoxTable* table_;
  std::vector<uint32_t> head_;  // by box
  std::vector<int64_t> ends_;   // a tree: the largest end of a box that has accesses
  size_t leaves_ = 1;
  std::vector<Past> pool_;
  uint32_t free_ = kNone;
};

}  // namespace maco::verify
