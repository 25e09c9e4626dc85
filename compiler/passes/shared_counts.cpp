// The verifier has rows of its own (heard_places.h): what one gets wrong the other doesn't.
#include "compiler/passes/shared_counts.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace maco::passes {

namespace {

constexpr size_t kJoined = 1 << 15;  // a power of two
constexpr size_t kLeast = 4096;      // rows and lists that are always kept

/// Sorted, without what is there twice and without nothing.
void tidy(std::vector<uint32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (!numbers.empty() && numbers[0] == SharedCounts::kNothing) numbers.erase(numbers.begin());
}

size_t slot(uint32_t a, uint32_t b) {
  const uint64_t mixed = ((uint64_t{a} << 32) | b) * 0x9e3779b97f4a7c15;
  return (mixed >> 40) % kJoined;
}

template <class Count>
class RowsOf final : public SharedCounts::Rows {
 public:
  explicit RowsOf(size_t streams) : rows_(padded(streams)), row_(padded(streams)) {}

  int32_t count(uint32_t row, size_t stream) const override { return rows_[row][stream]; }
  bool covers(uint32_t row, uint32_t need, size_t except) const override {
    const Count *x = rows_[row], *y = rows_[need];
    Count less = 0;  // negative if the row says less of some stream
    for (size_t i = 0; i < row_.size(); ++i)
      less = static_cast<Count>(less | static_cast<Count>(x[i] - y[i]));
    if (less >= 0) return true;
    for (size_t i = 0; i < row_.size(); ++i)
      if (x[i] < y[i] && i != except) return false;
    return true;
  }
  uint32_t join(uint32_t a, uint32_t b) override {
    const Count *x = rows_[a], *y = rows_[b];
    Count *row = row_.data(), less = 0, more = 0;  // negative if `a` says less, or more, than `b`
    for (size_t i = 0; i < row_.size(); ++i) {
      const Count m = x[i], n = y[i];
      less = static_cast<Count>(less | static_cast<Count>(m - n));
      more = static_cast<Count>(more | static_cast<Count>(n - m));
      row[i] = m > n ? m : n;
    }
    return more >= 0 ? b : less >= 0 ? a : rows_.number(row);
  }
  uint32_t join(const std::vector<uint32_t>& rows,
                const std::vector<SharedCounts::Least>& least) override {
    Count* row = row_.data();
    std::fill(row_.begin(), row_.end(), Count{0});
    for (const uint32_t other : rows) {
      const Count* x = rows_[other];
      for (size_t i = 0; i < row_.size(); ++i) row[i] = x[i] > row[i] ? x[i] : row[i];
    }
    for (const auto& [stream, count] : least)
      row[stream] = std::max(row[stream], static_cast<Count>(count));
    return rows_.number(row);
  }
  size_t size() const override { return rows_.size(); }
  size_t numbers() const override { return rows_.numbers(); }
  void keep_only(const std::vector<bool>& used) override { rows_.keep_only(used); }

  uint32_t raised(uint32_t row, const SharedCounts::Least& least) override {
    std::copy_n(rows_[row], row_.size(), row_.begin());
    row_[least.stream] = std::max(row_[least.stream], static_cast<Count>(least.count));
    return rows_.number(row_.data());
  }

 private:
  // Whole vectors of 16 bytes; what is behind the streams is 0.
  static size_t padded(size_t streams) {
    constexpr size_t kVector = 16 / sizeof(Count);
    return (streams + kVector - 1) / kVector * kVector;
  }

  ir::InternedArrays<Count> rows_;
  std::vector<Count> row_;  // that is made
};

std::unique_ptr<SharedCounts::Rows> rows_of(size_t streams, size_t most) {
  if (most <= size_t{std::numeric_limits<int16_t>::max()})
    return std::make_unique<RowsOf<int16_t>>(streams);
  return std::make_unique<RowsOf<int32_t>>(streams);
}

}  // namespace

SharedCounts::SharedCounts(size_t ranks, size_t streams, size_t most)
    : lists_(ranks),
      rows_(rows_of(streams, most)),
      joined_lists_(kJoined),
      joined_rows_(kJoined),
      list_(ranks) {
  most_rows_ = most_lists_ = kLeast;
}

void SharedCounts::remember(std::vector<Joined>& table, uint32_t a, uint32_t b, uint32_t both) {
  if (a > b) std::swap(a, b);
  table[slot(a, b)] = {a, b, both};
}

const SharedCounts::Joined* SharedCounts::find(const std::vector<Joined>& table, uint32_t a,
                                               uint32_t b) {
  if (a > b) std::swap(a, b);
  const Joined& known = table[slot(a, b)];
  return known.a == a && known.b == b ? &known : nullptr;
}

uint32_t SharedCounts::join_two_rows(uint32_t a, uint32_t b) {
  if (a == b || b == kNothing) return a;
  if (a == kNothing) return b;
  if (const Joined* known = find(joined_rows_, a, b)) return known->both;
  ++joins_;
  const uint32_t both = rows_->join(a, b);
  remember(joined_rows_, a, b, both);
  return both;
}

uint32_t SharedCounts::join_of(std::vector<uint32_t>& rows) {
  if (rows.size() > 2) tidy(rows);
  if (rows.empty()) return kNothing;
  if (rows.size() <= 2) return join_two_rows(rows.front(), rows.back());
  joins_ += static_cast<int64_t>(rows.size());
  return rows_->join(rows, {});
}

uint32_t SharedCounts::raised(std::vector<uint32_t> rows, const std::vector<Least>& least) {
  tidy(rows);
  joins_ += static_cast<int64_t>(rows.size());
  const uint32_t all = rows_->join(rows, least);
  for (const uint32_t row : rows)
    if (row != all) remember(joined_rows_, row, all, all);
  return all;
}

uint32_t SharedCounts::raised(uint32_t row, const Least& least) {
  ++joins_;
  const uint32_t all = rows_->raised(row, least);
  if (row != all && row != kNothing) remember(joined_rows_, row, all, all);
  return all;
}

uint32_t SharedCounts::join(uint32_t a, uint32_t b) {
  if (a == b || b == kNothing) return a;
  if (a == kNothing) return b;
  if (const Joined* known = find(joined_lists_, a, b)) return known->both;
  for (size_t r = 0; r < list_.size(); ++r) list_[r] = join_two_rows(row(a, r), row(b, r));
  const uint32_t both = lists_.number(list_.data());
  remember(joined_lists_, a, b, both);
  return both;
}

uint32_t SharedCounts::join_lists(std::vector<uint32_t>& lists) {
  tidy(lists);
  uint32_t all = kNothing;
  if (lists.size() <= 2) {
    for (const uint32_t list : lists) all = join(all, list);
  } else {
    for (size_t r = 0; r < list_.size(); ++r) {
      of_rank_.clear();
      for (const uint32_t list : lists)
        if (of_rank_.empty() || row(list, r) != of_rank_.back()) of_rank_.push_back(row(list, r));
      list_[r] = join_of(of_rank_);
    }
    all = lists_.number(list_.data());
    for (const uint32_t list : lists)
      if (list != all) remember(joined_lists_, list, all, all);
  }
  lists.clear();
  return all;
}

uint32_t SharedCounts::join_rows(uint32_t list, std::vector<std::vector<uint32_t>>& rows) {
  for (size_t r = 0; r < list_.size(); ++r) {
    rows[r].push_back(row(list, r));
    list_[r] = join_of(rows[r]);
    rows[r].clear();
  }
  return lists_.number(list_.data());
}

void SharedCounts::keep_only(const std::vector<bool>& lists, std::vector<bool> rows) {
  for (uint32_t i = 0; i < lists.size(); ++i)
    for (size_t r = 0; lists[i] && r < lists_.width(); ++r) rows[row(i, r)] = true;
  lists_.keep_only(lists);
  rows_->keep_only(rows);
  std::fill(joined_lists_.begin(), joined_lists_.end(), Joined{});
  std::fill(joined_rows_.begin(), joined_rows_.end(), Joined{});
  most_rows_ = 2 * rows_->size() + kLeast;
  most_lists_ = 2 * lists_.size() + kLeast;
}

}  // namespace maco::passes
