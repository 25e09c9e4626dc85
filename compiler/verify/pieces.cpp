#include "compiler/verify/pieces.h"

#include <algorithm>

namespace maco::verify {
namespace {

/// Elements [from, to) of a box, in the order of its rows, if they are a box.
std::optional<Box> run_of(const Box& box, int64_t from, int64_t to) {
  if (box.rows == 1) return Box{box.start + from, 0, 1, to - from};
  const int64_t row = from / box.width, column = from % box.width;
  if (column == 0 && to % box.width == 0)
    return joined({box.start + row * box.pitch, box.pitch, (to - from) / box.width, box.width});
  if ((to - 1) / box.width != row) return std::nullopt;
  return Box{box.start + row * box.pitch + column, 0, 1, to - from};
}

/// The part of `content`, which fills `whole`, that lies in `part`.
std::optional<Box> part_of(const Box& whole, const Box& content, const Box& part) {
  if (part == whole) return content;
  const int64_t offset = part.start - whole.start;
  if (whole.rows == 1) {
    if (part.rows > 1) return std::nullopt;
    return run_of(content, offset, offset + part.width);
  }
  if (part.rows > 1 && part.pitch != whole.pitch) return std::nullopt;
  const int64_t row = offset / whole.pitch, column = offset % whole.pitch;
  if (part.width == whole.width) {
    const int64_t first = row * whole.width;
    return run_of(content, first, first + part.rows * part.width);
  }
  // The same shape: a box of it.
  if (content.rows == whole.rows)
    return joined(
        {content.start + row * content.pitch + column, content.pitch, part.rows, part.width});
  if (content.rows == 1)
    return joined({content.start + row * whole.width + column, whole.width, part.rows, part.width});
  return std::nullopt;
}

/// Whether a piece's content lies in the operand `distance` elements behind where the piece lies.
bool is_moved_by(const Pieces::Piece& piece, int64_t distance) {
  Box there = piece.box;
  there.start += distance;
  return there == piece.content.at;
}

}  // namespace

Box joined(Box box) {
  if (box.rows <= 0 || box.width <= 0) return {};
  if (box.width == box.pitch) box = {box.start, 0, 1, box.width * box.rows};
  if (box.rows == 1) box.pitch = 0;
  return box;
}

bool Pieces::in_columns(const Box& box, int64_t pitch) {
  return (box.rows == 1 || box.pitch == pitch) && box.start % pitch + box.width <= pitch;
}

template <class M, class At>
At Pieces::next_near(M& pieces, const Box& box, At at) const {
  if (mixed_ || pitch_ == 0 || !in_columns(box, pitch_)) return at;
  const int64_t first = box.start % pitch_, end = first + box.width;
  while (at != pieces.end() && at->first < box.end()) {
    const int64_t column = at->first % pitch_, row = at->first - column;
    const int64_t nearest = std::max<int64_t>(first - widest_ + 1, 0);
    if (column >= nearest && column < end) break;
    at = pieces.lower_bound((column < nearest ? row : row + pitch_) + nearest);
  }
  return at;
}

void Pieces::write(const Piece& piece) {
  if (piece.box.empty()) return;
  const auto same = pieces_.find(piece.box.start);
  if (same != pieces_.end() && same->second.box == piece.box) {
    same->second = piece;
    return;
  }
  clear(piece.box);
  pieces_.emplace(piece.box.start, piece);
  longest_ = std::max(longest_, piece.box.end() - piece.box.start);
  if (pitch_ == 0) pitch_ = piece.box.pitch;
  mixed_ = mixed_ || pitch_ == 0 || !in_columns(piece.box, pitch_);
  widest_ = std::max(widest_, piece.box.width);
}

void Pieces::clear(const Box& box) {
  auto at = next_near(pieces_, box, pieces_.upper_bound(box.start - longest_));
  while (at != pieces_.end() && at->first < box.end()) {
    at = overlap(at->second.box, box) ? pieces_.erase(at) : std::next(at);
    at = next_near(pieces_, box, at);
  }
}

std::optional<Content> Pieces::read(const Box& box) const {
  // Mostly a piece as it was written; of tiles side by side, all those of a row overlap in range.
  if (const auto same = pieces_.find(box.start); same != pieces_.end() && same->second.box == box)
    return same->second.content;
  const Piece* first = nullptr;  // of several that fill it
  int64_t filled = 0;
  for (auto at = next_near(pieces_, box, pieces_.upper_bound(box.start - longest_));
       at != pieces_.end() && at->first < box.end(); at = next_near(pieces_, box, std::next(at))) {
    const Piece& piece = at->second;
    if (covers(piece.box, box)) {
      Content content = piece.content;
      if (content.fault != 0) return content;
      // Which elements of a part are there where rows are cut, is known where they lie as in the
      // operand.
      if (content.cut != 0 && box != piece.box) {
        if (!is_moved_by(piece, 0)) return std::nullopt;
        content.at = box;
        return content;
      }
      const auto part = part_of(piece.box, content.at, box);
      if (!part) return std::nullopt;
      content.at = *part;
      return content;
    }
    if (!overlap(piece.box, box)) continue;
    if (piece.content.fault != 0) return piece.content;
    if (!first) first = &piece;
    Content like = piece.content;
    like.at = first->content.at;
    if (!covers(box, piece.box) || like != first->content ||
        !is_moved_by(piece, first->content.at.start - first->box.start))
      return std::nullopt;
    filled += piece.box.rows * piece.box.width;
  }
  if (!first || filled != box.rows * box.width) return std::nullopt;
  const int64_t distance = first->content.at.start - first->box.start;
  if (first->content.cut != 0 && distance != 0) return std::nullopt;
  Content content = first->content;
  content.at = box;
  content.at.start += distance;
  return content;
}

}  // namespace maco::verify
