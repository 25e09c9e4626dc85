// Sends and receives of one launch, paired.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/reference/op.h"

namespace maco::reference {

/// The n-th send of a (source, destination, tag) meets the n-th receive of it, in definition order.
class Mailbox {
 public:
  /// Pairs all ends. Fails, naming an op, if one is unmatched or a rank doesn't exist.
  Status plan(const ir::Graph& graph, const Values& values);

  bool takes_part(size_t op, int rank) const { return letter(op, rank) >= 0; }
  bool arrived(size_t op, int rank) const {
    return letters_[static_cast<size_t>(letter(op, rank))].has_value();
  }
  void put(size_t op, int rank, Tensor value) {
    letters_[static_cast<size_t>(letter(op, rank))] = std::move(value);
  }
  const Tensor& get(size_t op, int rank) const {
    return *letters_[static_cast<size_t>(letter(op, rank))];
  }

 private:
  int64_t letter(size_t op, int rank) const { return letter_of_[op][static_cast<size_t>(rank)]; }
  std::vector<std::vector<int64_t>> letter_of_;  // op, rank: index of the letter, -1: takes no part
  std::vector<std::optional<Tensor>> letters_;
};

}  // namespace maco::reference
