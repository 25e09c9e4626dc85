// The parts of random graphs: random numbers, extents with dims, and values with what an op that
// reads them must know.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "runtime/cpu/executor.h"

namespace maco::fuzz {

class Random : public runtime::Random {
 public:
  using runtime::Random::Random;
  int64_t range(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(next() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool chance(int percent) { return range(0, 99) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(next() % items.size())];
  }
  std::string word(std::initializer_list<const char*> words) {
    return words.begin()[next() % words.size()];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i)
      std::swap(items[i - 1], items[static_cast<size_t>(next() % i)]);
  }
};

/// tokens * `tokens` + batch * `batch` + fixed.
struct Extent {
  int64_t fixed = 0, tokens = 0, batch = 0;
  bool constant() const { return tokens == 0 && batch == 0; }
  bool divisible(int64_t n) const { return fixed % n == 0 && tokens % n == 0 && batch % n == 0; }
  Extent times(int64_t n) const { return {fixed * n, tokens * n, batch * n}; }
  Extent over(int64_t n) const { return {fixed / n, tokens / n, batch / n}; }
  Extent plus(const Extent& o) const {
    return {fixed + o.fixed, tokens + o.tokens, batch + o.batch};
  }
  std::string text() const {
    std::string s;
    const auto add = [&](int64_t n, const char* name) {
      if (n == 0) return;
      s += s.empty() ? "" : " + ";
      s += *name == 0 ? fmt::to_string(n) : n == 1 ? name : fmt::format("{} * {}", n, name);
    };
    add(tokens, "tokens");
    add(batch, "batch");
    add(fixed, "");
    return s;
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};
using Shape = std::vector<Extent>;

/// A tensor that ops may read.
struct Value {
  std::string name;
  ir::DType dtype = ir::DType::F32;
  Shape shape;
  double most = 5;  // about the largest magnitude
  // The same bits whoever computes it: bound, or moved or converted from that, or integers.
  bool exact = false;
  bool positive = false;
  int64_t below = 0;  // not 0: integers from 0 to below this
  bool flat = false;  // a row's values may be so close that their deviations are all rounding

  size_t axes() const { return shape.size(); }
  bool constant() const { return shape[0].constant(); }
  int64_t last() const { return shape.back().constant() ? shape.back().fixed : 0; }
};

template <class T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace maco::fuzz
