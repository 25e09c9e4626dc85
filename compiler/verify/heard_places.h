// What ranks have heard of each other: rows of places, a row for each rank that is heard of, each
// row and each list of rows there once. Most tasks know the same of other ranks, and ranks that do
// the same are heard of in the same way, so that a join is mostly one that has been made before.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/interned.h"

namespace maco::verify {

class HeardPlaces {
 public:
  /// Lists of `rows` rows of `columns` places.
  HeardPlaces(size_t rows, size_t columns);

  /// The numbers of a list's rows. Valid until the next call that isn't const.
  const uint32_t* rows(uint32_t list) const { return lists_[list]; }
  const int32_t* places(uint32_t row) const { return reinterpret_cast<const int32_t*>(rows_[row]); }
  uint32_t list(const std::vector<uint32_t>& rows) { return lists_.number(rows.data()); }
  /// Numbers of lists are below.
  size_t lists() const { return lists_.numbers(); }
  /// The row in which `column` is at least `place`.
  uint32_t raised(uint32_t row, uint32_t column, int32_t place);
  /// What `a` and `b` say together.
  uint32_t joined(uint32_t a, uint32_t b);
  /// What all of these rows, or lists, say together; there may be duplicates. Reorders them.
  uint32_t joined_rows(std::vector<uint32_t>& rows);
  uint32_t joined(std::vector<uint32_t>& lists);

  /// Whether enough lists or rows have come since keep_only() to make another call worth while.
  bool many() const { return rows_.size() > most_rows_ || lists_.size() > most_lists_; }
  /// Forgets all but these lists (by number) and their rows.
  void keep_only(const std::vector<bool>& lists);
  /// Rows that were joined or raised word by word so far.
  int64_t rows_made() const { return rows_made_; }

 private:
  struct Joined {
    uint32_t a = 0, b = 0, both = 0;
  };
  struct Raised {
    uint32_t row = 0, column = 0;
    int32_t place = 0;
    uint32_t raised = 0;
  };
  uint32_t joined_rows(uint32_t a, uint32_t b);
  void remember(uint32_t a, uint32_t b, uint32_t both);
  void set_limits();
  struct JoinedMany {
    std::vector<uint32_t> lists;  // empty: unused
    uint32_t all = 0;
  };

  ir::Interned lists_, rows_;
  std::vector<uint32_t> list_, row_;  // that are made
  std::vector<uint32_t> rows_of_lists_;
  // The last results of each kind, by their operands.
  std::vector<Joined> joined_lists_, joined_rows_;
  std::vector<JoinedMany> joined_many_;
  std::vector<Raised> raised_;
  size_t most_rows_ = 0, most_lists_ = 0;
  int64_t rows_made_ = 0;
};

}  // namespace maco::verify
