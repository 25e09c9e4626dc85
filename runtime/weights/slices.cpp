#include "runtime/weights/slices.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace maco::runtime {
namespace {

// The rows (or columns) that two ranges have in common.
struct Common {
  int64_t begin, count;
  Common(int64_t a, int64_t a_count, int64_t b, int64_t b_count)
      : begin(std::max(a, b)), count(std::min(a + a_count, b + b_count) - begin) {}
};

void add_pieces(const WeightSlice& slice, const std::vector<WeightPart>& parts, size_t image,
                std::vector<WeightPiece>& pieces) {
  for (const WeightPart& part : parts) {
    const Common rows(slice.row, slice.rows, part.to_row, part.height());
    const Common cols(slice.col, slice.cols, part.to_col, part.width());
    if (rows.count <= 0 || cols.count <= 0) continue;
    const int64_t down = rows.begin - part.to_row, right = cols.begin - part.to_col;
    WeightPiece piece;
    piece.image = image;
    piece.source = part.source;
    piece.row = part.row + (part.transpose ? right : down);
    piece.col = part.col + (part.transpose ? down : right);
    piece.rows = part.transpose ? cols.count : rows.count;
    piece.cols = part.transpose ? rows.count : cols.count;
    piece.to_row = rows.begin - slice.row;
    piece.to_col = cols.begin - slice.col;
    piece.transpose = part.transpose;
    piece.plus = part.plus;
    pieces.push_back(piece);
  }
}

std::vector<WeightSlice> cut(const WeightTarget& target, size_t bytes) {
  const WeightParam& p = *target.param;
  const auto most = std::max<int64_t>(
      1, static_cast<int64_t>(bytes / target.images()) / ir::size_of(p.dtype));  // elements
  std::vector<WeightSlice> slices;
  const int64_t high = std::max<int64_t>(1, most / p.cols), wide = std::min(p.cols, most);
  for (int64_t row = 0; row < p.rows; row += high)
    for (int64_t col = 0; col < p.cols; col += wide)
      slices.push_back(
          {&target, row, std::min(high, p.rows - row), col, std::min(wide, p.cols - col)});
  return slices;
}

// Where a target begins in the checkpoint; targets without a file come first.
std::pair<int64_t, int64_t> begin_of(const WeightMap& map, const WeightTarget& target) {
  const auto& parts = target.param->parts_of(target.places[0].rank);
  if (parts.empty()) return {-1, 0};
  const WeightSource& source = map.sources[parts[0].source];
  return {static_cast<int64_t>(source.file),
          source.begin + parts[0].row * source.cols * ir::size_of(source.dtype)};
}

}  // namespace

size_t WeightSlice::bytes() const {
  return static_cast<size_t>(rows * cols * ir::size_of(target->param->dtype));
}
size_t WeightSlice::offset() const {
  return static_cast<size_t>((row * target->param->cols + col) * ir::size_of(target->param->dtype));
}

std::vector<WeightSlice> slice_weights(const WeightMap& map,
                                       const std::vector<WeightTarget>& targets, size_t bytes) {
  std::vector<std::pair<std::pair<int64_t, int64_t>, const WeightTarget*>> order;
  for (const WeightTarget& target : targets)
    if (!target.places.empty()) order.emplace_back(begin_of(map, target), &target);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<int64_t, std::deque<WeightSlice>> files;
  for (const auto& [begin, target] : order)
    for (const WeightSlice& slice : cut(*target, bytes)) files[begin.first].push_back(slice);
  std::vector<WeightSlice> all;
  while (!files.empty())
    for (auto file = files.begin(); file != files.end();) {
      all.push_back(file->second.front());
      file->second.pop_front();
      file = file->second.empty() ? files.erase(file) : std::next(file);
    }
  return all;
}

std::vector<WeightPiece> pieces_of(const WeightSlice& slice) {
  const WeightTarget& target = *slice.target;
  std::vector<WeightPiece> pieces;
  for (size_t image = 0; image < target.images(); ++image)
    add_pieces(slice, target.param->parts_of(target.places[image].rank), image, pieces);
  std::stable_sort(pieces.begin(), pieces.end(), [](const WeightPiece& a, const WeightPiece& b) {
    return std::tie(a.source, a.row, a.rows, a.col) < std::tie(b.source, b.row, b.rows, b.col);
  });
  return pieces;
}

int64_t bytes_read(const WeightMap& map, const WeightSlice& slice,
                   const std::vector<WeightPiece>& pieces) {
  int64_t bytes = slice.target->param->values.empty() ? 0 : static_cast<int64_t>(slice.bytes());
  for (const WeightPiece& piece : pieces)
    bytes += piece.rows * piece.cols * ir::size_of(map.sources[piece.source].dtype);
  return bytes;
}

int64_t bytes_read(const WeightMap& map, const WeightTarget& target) {
  const WeightSlice whole{&target, 0, target.param->rows, 0, target.param->cols};
  return bytes_read(map, whole, pieces_of(whole));
}

}  // namespace maco::runtime
