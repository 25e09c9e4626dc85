// What is known of ranks, for known.h: rows of counts, a count a stream, and lists of rows, a row a
// rank, each row and list there once. Ranks that do the same know the same and are heard of in the
// same way, so that a join is mostly one that has been made before.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/interned.h"

namespace maco::passes {

class SharedCounts {
 public:
  static constexpr uint32_t kNothing = 0;  // a list, or a row, that says nothing

  struct Least {
    size_t stream;
    int32_t count;
  };
  /// Rows of one width. Counts have 16 bits where that is enough: a join is then a few
  /// instructions.
  class Rows {
   public:
    virtual ~Rows() = default;
    virtual int32_t count(uint32_t row, size_t stream) const = 0;
    /// Whether the row says as much as the row `need`, of all streams but `except`.
    virtual bool covers(uint32_t row, uint32_t need, size_t except) const = 0;
    /// What both rows say.
    virtual uint32_t join(uint32_t a, uint32_t b) = 0;
    /// What all of the rows say, and that streams are so far.
    virtual uint32_t join(const std::vector<uint32_t>& rows, const std::vector<Least>& least) = 0;
    /// What the row says, and that a stream is so far.
    virtual uint32_t raised(uint32_t row, const Least& least) = 0;
    virtual size_t size() const = 0;
    /// Numbers of rows are below.
    virtual size_t numbers() const = 0;
    virtual void keep_only(const std::vector<bool>& used) = 0;
  };

  /// Lists of `ranks` rows of `streams` counts, none above `most`.
  SharedCounts(size_t ranks, size_t streams, size_t most);

  uint32_t row(uint32_t list, size_t rank) const { return lists_[list][rank]; }
  int32_t count(uint32_t row, size_t stream) const { return rows_->count(row, stream); }
  bool covers(uint32_t row, uint32_t need, size_t except) const {
    return rows_->covers(row, need, except);
  }
  /// What all of the rows say, and that streams are so far.
  uint32_t raised(std::vector<uint32_t> rows, const std::vector<Least>& least);
  uint32_t raised(uint32_t row, const Least& least);
  uint32_t join_two_rows(uint32_t a, uint32_t b);
  /// What all of `lists` say together; there may be duplicates. May change `lists`.
  uint32_t join_lists(std::vector<uint32_t>& lists);
  /// What `list` says together with all of `rows`, which are by rank. May change `rows`.
  uint32_t join_rows(uint32_t list, std::vector<std::vector<uint32_t>>& rows);
  uint32_t join(uint32_t a, uint32_t b);

  /// Numbers of lists and rows are below.
  size_t lists() const { return lists_.numbers(); }
  size_t rows() const { return rows_->numbers(); }
  /// Whether enough lists or rows have come since keep_only() to make another call worth while.
  bool many() const { return rows_->size() > most_rows_ || lists_.size() > most_lists_; }
  /// Forgets all but these lists, by number, with their rows, and these rows.
  void keep_only(const std::vector<bool>& lists, std::vector<bool> rows);
  /// Rows that were joined count by count so far.
  int64_t joins() const { return joins_; }

 private:
  struct Joined {
    uint32_t a = 0, b = 0, both = 0;
  };
  static void remember(std::vector<Joined>& table, uint32_t a, uint32_t b, uint32_t both);
  static const Joined* find(const std::vector<Joined>& table, uint32_t a, uint32_t b);
  uint32_t join_of(std::vector<uint32_t>& rows);

  ir::Interned lists_;
  std::unique_ptr<Rows> rows_;
  std::vector<Joined> joined_lists_, joined_rows_;  // the last results, by their operands
  std::vector<uint32_t> list_, of_rank_;            // that are made
  size_t most_rows_ = 0, most_lists_ = 0;
  int64_t joins_ = 0;
};

}  // namespace maco::passes
