// Arrays of one length, each there once, so that equal arrays have the same number.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace maco::ir {

/// Arrays of integers. Number 0 is all zeros.
template <class Word>
class InternedArrays {
  static_assert(std::is_integral_v<Word>, "arrays are compared byte by byte");

 public:
  explicit InternedArrays(size_t width) : width_(width), places_(1024, kNone) {
    number(std::vector<Word>(width, 0).data());
  }
  /// `words` must not point into this object.
  uint32_t number(const Word* words) {
    const uint32_t h = hash(words);
    size_t at = h & (places_.size() - 1);
    for (; places_[at] != kNone; at = (at + 1) & (places_.size() - 1))
      if (hashes_[places_[at]] == h && std::equal(words, words + width_, (*this)[places_[at]]))
        return places_[at];
    uint32_t n = 0;
    if (free_.empty()) {
      n = static_cast<uint32_t>(hashes_.size());
      hashes_.push_back(h);
      words_.insert(words_.end(), words, words + width_);
    } else {
      n = free_.back();
      free_.pop_back();
      hashes_[n] = h;
      std::copy_n(words, width_, words_.data() + size_t{n} * width_);
    }
    places_[at] = n;
    if (2 * size() > places_.size()) grow();
    return n;
  }
  /// Valid until the next number().
  const Word* operator[](uint32_t number) const { return words_.data() + size_t{number} * width_; }
  size_t width() const { return width_; }
  /// How many there are.
  size_t size() const { return hashes_.size() - free_.size(); }
  /// Numbers are below.
  size_t numbers() const { return hashes_.size(); }
  /// Forgets those that aren't `used` (by number), but for 0; their numbers are given again.
  void keep_only(const std::vector<bool>& used) {
    free_.clear();
    std::fill(places_.begin(), places_.end(), kNone);
    for (uint32_t i = 0; i < hashes_.size(); ++i)
      if (i == 0 || used[i])
        place(i);
      else
        free_.push_back(i);
  }

 private:
  uint32_t hash(const Word* words) const {
    constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
    const auto* bytes = reinterpret_cast<const char*>(words);
    size_t left = width_ * sizeof(Word);
    const auto take = [&](size_t n) {
      uint64_t word = 0;
      std::memcpy(&word, bytes, n);
      bytes += n, left -= n;
      return word;
    };
    uint64_t sums[4] = {1, 2, 3, 4};  // apart from each other, so that they don't wait
    while (left >= sizeof sums)
      for (uint64_t& sum : sums) sum = (sum ^ take(8)) * kFactor;
    for (size_t n = left / 8; n > 0; --n) sums[0] = (sums[0] ^ take(8)) * kFactor;
    if (left > 0) sums[1] = (sums[1] ^ take(left)) * kFactor;
    uint64_t all = 0;
    for (const uint64_t sum : sums) {
      all = (all ^ std::rotl(sum, 32)) * kFactor;
      all ^= all >> 32;
    }
    return static_cast<uint32_t>(all);
  }
  void place(uint32_t number) {
    size_t at = hashes_[number] & (places_.size() - 1);
    while (places_[at] != kNone) at = (at + 1) & (places_.size() - 1);
    places_[at] = number;
  }
  void grow() {
    std::vector<bool> used(hashes_.size(), true);
    for (const uint32_t f : free_) used[f] = false;
    places_.assign(2 * places_.size(), kNone);
    for (uint32_t i = 0; i < hashes_.size(); ++i)
      if (used[i]) place(i);
  }

  static constexpr uint32_t kNone = ~0u;
  size_t width_;
  std::vector<Word> words_;       // by number
  std::vector<uint32_t> hashes_;  // by number
  std::vector<uint32_t> places_;  // numbers by hash; a power of two, at most half full
  std::vector<uint32_t> free_;
};

using Interned = InternedArrays<uint32_t>;

}  // namespace maco::ir
