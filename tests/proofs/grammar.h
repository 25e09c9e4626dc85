// A second author of Programs: changes texts by their grammar alone, without knowing their meaning.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/proofs/grammar_lines.h"

namespace maco::proofs {

/// A text that was changed.
struct Mutant {
  std::string text;
  std::string kind;                  // "number", "word role", "access dropped", "pair"
  std::string place;                 // in the grammar: "task sm", "call"; of the last, if a pair
  std::vector<std::string> changes;  // for people: "12: BEFORE\n  -> AFTER"
};

class Mutator {
 public:
  /// Values come from any of `texts`.
  explicit Mutator(const std::vector<std::string>& texts);
  /// Text `subject`, changed; the same for the same seed.
  Mutant make(size_t subject, uint64_t seed) const;

 private:
  struct Values {
    std::map<std::string, std::vector<std::string>> by_type, by_key;
    void add(const Line& line);
    void finish();
  };
  class Change;

  std::vector<std::vector<Line>> texts_;
  std::vector<Values> own_;
  Values all_;
};

}  // namespace maco::proofs
