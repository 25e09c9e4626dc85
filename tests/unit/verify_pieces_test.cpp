// What lies where: the verifier's index of pieces against a plain list.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "compiler/verify/pieces.h"

using namespace maco;
using verify::Box;
using verify::Content;
using verify::Pieces;

namespace {

// Pieces in no order, all of which are looked at.
class List {
 public:
  void write(const Pieces::Piece& piece) {
    clear(piece.box);
    pieces_.push_back(piece);
  }
  void clear(const Box& box) {
    std::erase_if(pieces_, [&](const auto& piece) { return overlap(piece.box, box); });
  }
  const std::vector<Pieces::Piece>& all() const { return pieces_; }

 private:
  std::vector<Pieces::Piece> pieces_;
};

// Whole and partial tiles of a matrix of `rows` x `pitch`, and now and then what fits no matrix.
Box random_box(std::mt19937& random, int64_t rows, int64_t pitch, bool mixed) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  if (mixed && below(20) == 0) return {below(rows * pitch - 40), 0, 1, 1 + below(40)};
  constexpr int64_t high = 4, wide = 6;
  const bool whole = below(3) > 0;
  const int64_t r = whole ? below(rows / high) * high : below(rows - high),
                c = whole ? below(pitch / wide) * wide : below(pitch - wide);
  return verify::joined(
      {r * pitch + c, pitch, whole ? high : 1 + below(high), whole ? wide : 1 + below(wide)});
}

}  // namespace

TEST_CASE("pieces that are written, cleared and read are those of a plain list") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const bool mixed = seed % 4 == 0;
    const int64_t rows = 16, pitch = seed % 2 == 0 ? 61 : 240;
    Pieces pieces;
    List list;
    for (uint32_t i = 0; i < 400; ++i) {
      const Box box = random_box(random, rows, pitch, mixed);
      if (random() % 8 == 0) {
        pieces.clear(box);
        list.clear(box);
      } else {
        Content content{.ranks = 1, .block = i};
        content.at = box;
        pieces.write({box, content, i});
        list.write({box, content, i});
      }
      size_t count = 0;
      for (const auto& [start, piece] : pieces) {
        ++count;
        REQUIRE(start == piece.box.start);
        REQUIRE(std::ranges::any_of(list.all(), [&](const auto& other) {
          return other.box == piece.box && other.content == piece.content;
        }));
      }
      REQUIRE(count == list.all().size());
      // Whole pieces are read as they were written; what nothing overlaps holds nothing.
      for (const auto& piece : list.all()) REQUIRE(pieces.read(piece.box) == piece.content);
      const Box any = random_box(random, rows, pitch, mixed);
      const auto met = std::ranges::count_if(
          list.all(), [&](const auto& piece) { return overlap(piece.box, any); });
      if (met == 0) REQUIRE_FALSE(pieces.read(any));
      if (const auto read = pieces.read(any)) REQUIRE(read->ranks == 1);
    }
  }
}
