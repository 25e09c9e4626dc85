#include "runtime/weights/read.h"

#include <algorithm>
#include <cstring>

#include "runtime/weights/convert.h"

namespace maco::runtime {
namespace {

// A run of a row that is at least so long is read by itself. For shorter runs whole rows are read,
// if these aren't much longer.
constexpr int64_t kLongRun = int64_t{16} << 10;
constexpr int64_t kBatch = int64_t{1} << 20;  // the most bytes that are read and then converted
constexpr int64_t kMuchLonger = 16, kMuchLongerAgain = 2;  // the latter if rows are read again

bool covered(const WeightSlice& slice, const std::vector<WeightPiece>& pieces, size_t image) {
  int64_t elements = 0;
  for (const WeightPiece& piece : pieces)
    if (piece.image == image) elements += piece.rows * piece.cols;
  return elements == slice.rows * slice.cols;
}

}  // namespace

Status SliceReader::fill(const WeightSlice& slice, std::span<std::byte* const> images,
                         int64_t& read) {
  const std::vector<WeightPiece> pieces = pieces_of(slice);
  read = bytes_read(map_, slice, pieces);
  const WeightParam& param = *slice.target->param;
  if (!param.values.empty()) {
    const float* const values = param.values.data() + slice.row * param.cols + slice.col;
    convert(ir::DType::F32, reinterpret_cast<const std::byte*>(values), param.dtype, images[0],
            slice.rows * slice.cols, std::nullopt);
    return {};
  }
  for (size_t i = 0; i < images.size(); ++i)
    if (!covered(slice, pieces, i)) std::memset(images[i], 0, slice.bytes());
  for (size_t i = 0; i < pieces.size();) {
    size_t end = i + 1;
    while (end < pieces.size() && pieces[end].source == pieces[i].source &&
           pieces[end].row == pieces[i].row && pieces[end].rows == pieces[i].rows)
      ++end;
    MACO_TRY(fill_rows(slice, Pieces(pieces).subspan(i, end - i), images));
    i = end;
  }
  return {};
}

bool SliceReader::is_direct(const WeightSlice& slice, const WeightPiece& piece) const {
  const WeightSource& source = map_.sources[piece.source];
  if (source.dtype != slice.target->param->dtype || piece.plus || piece.transpose) return false;
  const bool one_run = piece.rows == 1 || (piece.cols == source.cols && piece.cols == slice.cols);
  return one_run || piece.cols * ir::size_of(source.dtype) >= kLongRun;
}

Status SliceReader::read_direct(const WeightSlice& slice, const WeightPiece& piece,
                                std::byte* image) {
  const WeightSource& source = map_.sources[piece.source];
  const int64_t size = ir::size_of(source.dtype);
  int64_t rows = piece.rows, cols = piece.cols;
  if (cols == source.cols && cols == slice.cols) {
    cols *= rows;
    rows = 1;
  }
  for (int64_t r = 0; r < rows; ++r)
    MACO_TRY(files_.read(source, ((piece.row + r) * source.cols + piece.col) * size,
                         image + ((piece.to_row + r) * slice.cols + piece.to_col) * size,
                         static_cast<size_t>(cols * size)));
  return {};
}

Status SliceReader::fill_rows(const WeightSlice& slice, Pieces pieces,
                              std::span<std::byte* const> images) {
  const bool direct = std::all_of(pieces.begin(), pieces.end(),
                                  [&](const WeightPiece& p) { return is_direct(slice, p); });
  if (direct) {
    for (const WeightPiece& piece : pieces)
      MACO_TRY(read_direct(slice, piece, images[piece.image]));
    return {};
  }
  // The columns that any piece needs, unless most of them are in none.
  int64_t begin = pieces[0].col, end = begin, wanted = 0;
  for (const WeightPiece& piece : pieces) {
    end = std::max(end, piece.col + piece.cols);
    wanted += piece.cols;
  }
  const WeightSource& source = map_.sources[pieces[0].source];
  const int64_t size = ir::size_of(source.dtype);
  if (end - begin > 2 * wanted || (end - begin) * size > static_cast<int64_t>(most_)) {
    for (const WeightPiece& piece : pieces)
      MACO_TRY(read_buffered(slice, Pieces(&piece, 1), piece.col, piece.col + piece.cols, images));
    return {};
  }
  return read_buffered(slice, pieces, begin, end, images);
}

Status SliceReader::read_buffered(const WeightSlice& slice, Pieces pieces, int64_t begin,
                                  int64_t end, std::span<std::byte* const> images) {
  const WeightSource& source = map_.sources[pieces[0].source];
  const int64_t size = ir::size_of(source.dtype), most = static_cast<int64_t>(most_) / size;
  const bool again =
      std::any_of(pieces.begin(), pieces.end(), [](const WeightPiece& p) { return p.transpose; });
  const int64_t longer = again ? kMuchLongerAgain : kMuchLonger;
  if ((end - begin) * size < kLongRun && source.cols <= longer * (end - begin) &&
      source.cols <= most) {
    begin = 0;
    end = source.cols;
  }
  const int64_t pitch = end - begin,
                step = std::max<int64_t>(1, std::min(most, kBatch / size) / pitch);
  const auto needed = static_cast<size_t>(std::min(step, pieces[0].rows) * pitch * size);
  if (buffer_.size() < needed) buffer_.resize(needed);
  const WeightParam& param = *slice.target->param;
  for (int64_t r = 0; r < pieces[0].rows; r += step) {
    const int64_t rows = std::min(step, pieces[0].rows - r), row = pieces[0].row + r;
    // If the box has whole rows, they are one run.
    const int64_t runs = pitch == source.cols ? 1 : rows;
    for (int64_t i = 0; i < runs; ++i)
      MACO_TRY(files_.read(source, ((row + i) * source.cols + begin) * size,
                           buffer_.data() + i * pitch * size,
                           static_cast<size_t>(rows / runs * pitch * size)));
    for (const WeightPiece& piece : pieces) {
      const int64_t to_row = piece.to_row + (piece.transpose ? 0 : r),
                    to_col = piece.to_col + (piece.transpose ? r : 0);
      convert_box({source.dtype, pitch}, buffer_.data() + (piece.col - begin) * size, rows,
                  piece.cols, {param.dtype, slice.cols},
                  images[piece.image] + (to_row * slice.cols + to_col) * ir::size_of(param.dtype),
                  piece.transpose, piece.plus);
    }
  }
  return {};
}

}  // namespace maco::runtime
