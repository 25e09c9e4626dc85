#include "compiler/verify/history.h"

#include <algorithm>

namespace maco::verify {

BoxTable::BoxTable(const std::vector<Box>& boxes, std::vector<uint32_t>& ids, size_t most_runs)
    : most_runs_(most_runs) {
  struct Key {
    int64_t pitch, start;
    int32_t space;
    uint32_t box;
  };
  std::vector<Key> order(boxes.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    const Box& b = boxes[i];
    order[i] = {b.pitch, b.space != 0 ? b.start_in_space : b.start, b.space, i};
  }
  std::sort(order.begin(), order.end(), [&](const Key& a, const Key& b) {
    if (a.space != b.space) return a.space < b.space;
    if (a.pitch != b.pitch) return a.pitch < b.pitch;
    if (a.start != b.start) return a.start < b.start;
    return boxes[a.box] != boxes[b.box] ? boxes[a.box] < boxes[b.box] : a.box < b.box;
  });
  ids.resize(boxes.size());
  for (const Key& k : order) {
    if (boxes_.empty() || boxes_.back() != boxes[k.box]) boxes_.push_back(boxes[k.box]);
    ids[k.box] = static_cast<uint32_t>(boxes_.size() - 1);
  }
  order = {};
  boxes_.shrink_to_fit();
  corners_.reserve(boxes_.size());
  for (uint32_t id = 0; id < boxes_.size(); ++id) {
    const Box& b = boxes_[id];
    corners_.push_back(b.pitch > 0 ? Corner{b.start / b.pitch, b.start % b.pitch}
                                   : Corner{b.start, 0});
    if (matrices_.empty() || matrices_.back().space != b.space ||
        matrices_.back().pitch != b.pitch) {
      Matrix& m = matrices_.emplace_back();
      m.space = b.space;
      m.pitch = b.pitch;
      m.first = id;
    }
    matrices_.back().last = id + 1;
    if (b.pitch > 0 && corners_.back().column + b.width > b.pitch) matrices_.back().wraps = true;
  }
  for (Matrix& m : matrices_) {
    while (m.leaves * kLeaf < m.last - m.first) m.leaves *= 2;
    grow(m.tree, m, [&](uint32_t id) { return boxes_[id].empty() ? Rectangle{} : rectangle(id); });
    if (m.space != 0)
      grow(m.tree_in_space, m, [&](uint32_t id) { return rectangle_in_space(boxes_[id]); });
  }
  known_.assign(boxes_.size(), {});
  if (most_runs_ > 0) most_runs_ += 8 * boxes_.size();
}

template <class Rect>
void BoxTable::grow(std::vector<Rectangle>& tree, const Matrix& m, const Rect& rectangle_of) {
  const auto extend = [](Rectangle& a, const Rectangle& b) {
    a = {std::min(a.r0, b.r0), std::max(a.r1, b.r1), std::min(a.c0, b.c0), std::max(a.c1, b.c1)};
  };
  tree.assign(2 * m.leaves, {});
  for (uint32_t id = m.first; id < m.last; ++id)
    extend(tree[m.leaves + (id - m.first) / kLeaf], rectangle_of(id));
  for (size_t i = m.leaves; i-- > 1;) {
    extend(tree[i], tree[2 * i]);
    extend(tree[i], tree[2 * i + 1]);
  }
}

/// The rectangle of a box that has a space; its columns are within the rows.
BoxTable::Rectangle BoxTable::rectangle_in_space(const Box& b) {
  const int64_t row = b.start_in_space / b.pitch_in_space,
                column = b.start_in_space % b.pitch_in_space;
  return {row, row + b.rows_in_space, column, column + b.width_in_space};
}

BoxTable::Rectangle BoxTable::rectangle(uint32_t id) const {
  const Box& b = boxes_[id];
  const Corner& at = corners_[id];
  if (b.pitch == 0) return {at.row, at.row + b.width, 0, 1};
  return {at.row, at.row + b.rows, at.column, at.column + b.width};
}

BoxTable::Runs BoxTable::overlapping(uint32_t id) const {
  Known& known = known_[id];
  if (known.runs == 0) {
    // Remembered, unless they are so many that memory wouldn't be linear any more.
    if (runs_.size() >= most_runs_) {
      scratch_.clear();
      find(boxes_[id], scratch_);
      return {scratch_.data(), scratch_.data() + scratch_.size()};
    }
    known.first = static_cast<uint32_t>(runs_.size());
    find(boxes_[id], runs_);
    known.runs = static_cast<uint32_t>(runs_.size()) - known.first;
  }
  return {runs_.data() + known.first, runs_.data() + known.first + known.runs};
}

/// `box` as rectangles of a matrix of rows `pitch` bytes long; returns how many. A box of one run
/// becomes its first row, its whole rows and its last row.
size_t BoxTable::rectangles(const Box& box, int64_t pitch, Rectangle (&parts)[3]) {
  if (pitch == 0) {
    parts[0] = {box.start, box.start + box.width, 0, 1};
    return 1;
  }
  const int64_t row = box.start / pitch, column = box.start % pitch;
  if (box.pitch == pitch) {
    parts[0] = {row, row + box.rows, column, column + box.width};
    return 1;
  }
  const int64_t last = (box.end() - 1) / pitch, end = (box.end() - 1) % pitch + 1;
  if (row == last) {
    parts[0] = {row, row + 1, column, end};
    return 1;
  }
  parts[0] = {row, row + 1, column, pitch};
  parts[1] = {last, last + 1, 0, end};
  parts[2] = {row + 1, last, 0, pitch};
  return row + 1 < last ? 3 : 2;
}

void BoxTable::find(const Box& q, std::vector<Run>& runs, bool exact) const {
  const size_t since = runs.size();
  for (const Matrix& m : matrices_) {
    if (m.space != 0 && m.space == q.space) {
      const Rectangle b = rectangle_in_space(q);
      const auto meets = [&](const Rectangle& a) {
        return a.r0 < b.r1 && b.r0 < a.r1 && a.c0 < b.c1 && b.c0 < a.c1;
      };
      descend(
          m, m.tree_in_space, 1, 0, m.leaves, meets,
          [&](uint32_t id) { return meets(rectangle_in_space(boxes_[id])); }, runs, since);
      continue;
    }
    if (q.pitch == m.pitch || q.rows == 1) {
      Rectangle parts[3];
      const size_t count = rectangles(q, m.pitch, parts);
      // A byte beyond the end of a row is one of the next row.
      const int64_t shifts = m.wraps || (m.pitch > 0 && parts[0].c1 > m.pitch) ? 1 : 0;
      const auto meets = [&](const Rectangle& a) {
        for (size_t i = 0; i < count; ++i)
          for (int64_t k = -shifts; k <= shifts; ++k) {
            const Rectangle& b = parts[i];
            const int64_t c = k * m.pitch;
            if (a.r0 < b.r1 - k && b.r0 - k < a.r1 && a.c0 < b.c1 + c && b.c0 + c < a.c1)
              return true;
          }
        return false;
      };
      descend(
          m, m.tree, 1, 0, m.leaves, meets, [&](uint32_t id) { return meets(rectangle(id)); }, runs,
          since);
      continue;
    }
    if (m.pitch == 0) {
      const auto meets = [&](const Rectangle& a) {
        return a.r0 < a.r1 && overlap({a.r0, 0, 1, a.r1 - a.r0}, q);
      };
      descend(
          m, m.tree, 1, 0, m.leaves, meets, [&](uint32_t id) { return meets(rectangle(id)); }, runs,
          since);
      continue;
    }
    // Rows of two lengths: by the bytes from the first to the last.
    const auto near = [&](const Rectangle& a) {
      return a.r0 < a.r1 && a.r0 * m.pitch + a.c0 < q.end() &&
             q.start < (a.r1 - 1) * m.pitch + a.c1;
    };
    const auto meets = [&](uint32_t id) {
      return exact ? overlap(boxes_[id], q) : near(rectangle(id));
    };
    descend(m, m.tree, 1, 0, m.leaves, near, meets, runs, since);
  }
}

/// Appends the boxes of leaves [first, first + count), which are below node `at`; runs from `since`
/// on may grow.
template <class Near, class Meets>
void BoxTable::descend(const Matrix& matrix, const std::vector<Rectangle>& tree, size_t at,
                       size_t first, size_t count, const Near& near, const Meets& meets,
                       std::vector<Run>& runs, size_t since) const {
  if (!near(tree[at])) return;
  if (count > 1) {
    descend(matrix, tree, 2 * at, first, count / 2, near, meets, runs, since);
    descend(matrix, tree, 2 * at + 1, first + count / 2, count / 2, near, meets, runs, since);
    return;
  }
  const uint32_t begin = matrix.first + static_cast<uint32_t>(first) * kLeaf;
  for (uint32_t id = begin; id < std::min(begin + kLeaf, matrix.last); ++id) {
    if (!meets(id)) continue;
    if (runs.size() > since && runs.back().last == id)
      ++runs.back().last;
    else
      runs.push_back({id, id + 1});
  }
}

}  // namespace maco::verify
