// Formulas for values that differ from rank to rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace maco::frontend {

/// A sum of products and a constant: "4 * rank", "+ 2". The texts are expressions over `rank` and
/// `world`.
struct RankFormula {
  struct Term {
    int64_t factor = 1;
    std::string text;
    bool binds = true;  // whether it needs no parentheses as a factor
  };
  std::vector<Term> terms;
  int64_t constant = 0;
  bool steps = false;  // the last term is a comparison and comes behind the constant

  std::string text() const;
};

/// Finds formulas for values on some of the ranks of a world. Results are kept, since plans repeat
/// themselves.
class RankFormulas {
 public:
  RankFormulas(std::vector<int32_t> ranks, int32_t world);
  /// A formula whose value on ranks[i] is values[i]; nothing if no form fits.
  const std::optional<RankFormula>& find(const std::vector<int64_t>& values);
  const std::vector<int32_t>& ranks() const { return ranks_; }

 private:
  /// A term whose factor is unknown, and its values on ranks_.
  struct Basis {
    std::string text;
    bool binds = true;
    std::vector<int64_t> values;
  };
  Basis basis(std::string text, bool binds, int64_t (*value)(int64_t rank, int64_t k, int64_t n),
              int64_t k, int64_t n) const;
  void add_form(std::vector<Basis> form, int sign = 0, bool steps = false);
  std::optional<RankFormula> search(const std::vector<int64_t>& values) const;
  bool holds(const RankFormula& formula, const std::vector<int64_t>& values) const;

  struct Form {
    std::vector<Basis> terms;
    int sign = 0;  // the sign that the first factor must have; 0: either
    bool steps = false;
  };
  std::vector<int32_t> ranks_;
  int32_t world_;
  std::vector<Form> forms_;  // the simplest first
  std::map<std::vector<int64_t>, std::optional<RankFormula>> found_;
};

}  // namespace maco::frontend
