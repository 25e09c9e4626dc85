#include "compiler/verify/heard_places.h"

#include <algorithm>
#include <utility>

namespace maco::verify {
namespace {

// Powers of two.
constexpr size_t kJoinedRows = 1 << 15, kJoinedLists = 1 << 15, kRaised = 1 << 10,
                 kJoinedMany = 1 << 12;
constexpr size_t kLeast = 4096;  // rows and lists that are always kept

uint64_t mixed(uint64_t x) {
  x *= 0x9e3779b97f4a7c15;
  return x ^ (x >> 32);
}
size_t slot(uint32_t a, uint32_t b, size_t slots) {
  return mixed((uint64_t{a} << 32) | b) & (slots - 1);
}

}  // namespace

HeardPlaces::HeardPlaces(size_t rows, size_t columns)
    : lists_(rows),
      rows_(columns),
      list_(rows),
      row_(columns),
      joined_lists_(kJoinedLists),
      joined_rows_(kJoinedRows),
      joined_many_(kJoinedMany),
      raised_(kRaised) {
  set_limits();
}

void HeardPlaces::set_limits() {
  most_rows_ = 2 * rows_.size() + kLeast;
  most_lists_ = 2 * lists_.size() + kLeast;
}

uint32_t HeardPlaces::raised(uint32_t row, uint32_t column, int32_t place) {
  if (places(row)[column] >= place) return row;
  Raised& known = raised_[slot(row * 31 + column, static_cast<uint32_t>(place), kRaised)];
  if (known.raised != 0 && known.row == row && known.column == column && known.place == place)
    return known.raised;
  std::copy_n(rows_[row], rows_.width(), row_.begin());
  row_[column] = static_cast<uint32_t>(place);
  ++rows_made_;
  known = {row, column, place, rows_.number(row_.data())};
  return known.raised;
}

uint32_t HeardPlaces::joined_rows(uint32_t a, uint32_t b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  if (a > b) std::swap(a, b);
  Joined& known = joined_rows_[slot(a, b, kJoinedRows)];
  if (known.a == a && known.b == b) return known.both;
  const int32_t *x = places(a), *y = places(b);
  int32_t less = 0, more = 0;  // of differences: whether one is negative
  for (size_t i = 0; i < row_.size(); ++i) {
    less |= x[i] - y[i];
    more |= y[i] - x[i];
    row_[i] = static_cast<uint32_t>(std::max(x[i], y[i]));
  }
  ++rows_made_;
  known = {a, b, more >= 0 ? b : less >= 0 ? a : rows_.number(row_.data())};
  return known.both;
}

uint32_t HeardPlaces::joined(uint32_t a, uint32_t b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  if (a > b) std::swap(a, b);
  const Joined& known = joined_lists_[slot(a, b, kJoinedLists)];
  if (known.a == a && known.b == b) return known.both;
  for (size_t i = 0; i < list_.size(); ++i) list_[i] = joined_rows(lists_[a][i], lists_[b][i]);
  const uint32_t both = lists_.number(list_.data());
  remember(a, b, both);
  return both;
}

void HeardPlaces::remember(uint32_t a, uint32_t b, uint32_t both) {
  if (a > b) std::swap(a, b);
  if (a != 0 && a != b) joined_lists_[slot(a, b, kJoinedLists)] = {a, b, both};
}

uint32_t HeardPlaces::joined_rows(std::vector<uint32_t>& rows) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (!rows.empty() && rows[0] == 0) rows.erase(rows.begin());
  if (rows.empty()) return 0;
  if (rows.size() <= 2) return joined_rows(rows.front(), rows.back());
  std::copy_n(rows_[rows[0]], row_.size(), row_.begin());
  for (size_t k = 1; k < rows.size(); ++k) {
    const uint32_t* other = rows_[rows[k]];
    for (size_t i = 0; i < row_.size(); ++i)
      row_[i] = static_cast<uint32_t>(
          std::max(static_cast<int32_t>(row_[i]), static_cast<int32_t>(other[i])));
  }
  rows_made_ += static_cast<int64_t>(rows.size()) - 1;
  return rows_.number(row_.data());
}

uint32_t HeardPlaces::joined(std::vector<uint32_t>& lists) {
  std::sort(lists.begin(), lists.end());
  lists.erase(std::unique(lists.begin(), lists.end()), lists.end());
  if (lists.empty()) return 0;
  if (lists.size() <= 2) return joined(lists.front(), lists.back());
  uint64_t hash = lists.size();
  for (const uint32_t list : lists) hash = mixed(hash ^ list);
  JoinedMany& known = joined_many_[hash & (kJoinedMany - 1)];
  if (known.lists == lists) return known.all;
  for (size_t i = 0; i < list_.size(); ++i) {
    rows_of_lists_.clear();
    for (const uint32_t list : lists)
      if (const uint32_t row = lists_[list][i];
          rows_of_lists_.empty() || row != rows_of_lists_.back())
        rows_of_lists_.push_back(row);
    list_[i] = joined_rows(rows_of_lists_);
  }
  const uint32_t all = lists_.number(list_.data());
  for (const uint32_t list : lists) remember(list, all, all);
  known.lists = lists;
  known.all = all;
  return all;
}

void HeardPlaces::keep_only(const std::vector<bool>& lists) {
  std::vector<bool> rows(rows_.numbers(), false);
  for (uint32_t i = 0; i < lists.size(); ++i)
    if (lists[i])
      for (size_t k = 0; k < lists_.width(); ++k) rows[lists_[i][k]] = true;
  lists_.keep_only(lists);
  rows_.keep_only(rows);
  std::fill(joined_lists_.begin(), joined_lists_.end(), Joined{});
  std::fill(joined_rows_.begin(), joined_rows_.end(), Joined{});
  std::fill(raised_.begin(), raised_.end(), Raised{});
  std::fill(joined_many_.begin(), joined_many_.end(), JoinedMany{});
  set_limits();
}

}  // namespace maco::verify
