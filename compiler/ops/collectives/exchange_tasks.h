// What the algorithms that exchange whole tiles share: how a tensor is cut into tiles that travel,
// the slots in which tiles arrive, and the tasks that move them.
//
// Peers write only slots: symmetric scratch memory, with a copy for every second launch. Four
// device functions do all of it (functions/exchange.h): `put` copies a tile into peers' slots,
// `combine` reduces the own tile with those that arrived, `take` copies an arrived tile into a
// tensor, `hop` sends a tile on round a ring. A small tile travels as packets, which carry their
// own flags. A large tile travels as plain stores, followed by one peer event.
//
// Where every two ranks that exchange slots wait for each other in each launch, a rank that begins
// launch e + 2 knows that its peers have ended launch e; so nothing else need protect a slot. Where
// data flows one way only (broadcast, ring_shift), the reader acknowledges, and the writer waits
// for the acknowledgement of two launches ago.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/functions/exchange.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

/// Tensors of at most this many bytes travel as packets: these take twice the bytes and save a
/// round of flags.
inline constexpr int64_t kPacketBytes = 256 * 1024;

/// A block of n x cols elements cut into `down` x `across` boxes of at most BR x BC.
struct Boxes {
  ir::Expr rows;  // n, at launch
  int64_t max_rows = 1, cols = 1;
  int64_t BR = 1, BC = 1, down = 1, across = 1;
  int64_t stride = 16;  // elements of a tile in its slot
  int64_t count() const { return down * across; }
};
/// A tensor of one fixed axis as `blocks` rows, so that blocks of axis 0 are rows as in any other
/// tensor.
Mat by_blocks(const TileContext& context, ir::TensorId tensor, int64_t blocks);
/// The best way to send blocks of `rows` rows of `m`, which has `blocks` of them, if a link carries
/// one of `shares` parts of m: the tiles, and the method `packets` or `stores`.
Cut choose_exchange(const TileContext& context, const Mat& m, const ir::Expr& rows, int64_t blocks,
                    int64_t shares = 1);
/// How many tiles are sent before the first is read: enough to fill a link, and to give each SM
/// that communicates some to send while it waits for others.
int64_t tiles_ahead(const TileContext& context);
/// Calls first(i) for each of `count`, and then(i) once `ahead` more have been begun.
template <class First, class Then>
void in_turn(int64_t count, int64_t ahead, First first, Then then) {
  for (int64_t i = 0; i < count + ahead; ++i) {
    if (i < count) first(i);
    if (i >= ahead) then(i - ahead);
  }
}
/// The tiles of such a block, by the op's cut.
Boxes boxes_of(const TileContext& context, const Mat& m, const ir::Expr& rows);
bool in_packets(const TileContext& context);
/// The reduction that the op's `reduce` names.
ir::Reduction reduction(const TileContext& context);

inline uint64_t only(int64_t rank) { return uint64_t{1} << rank; }
inline uint64_t all_but(int64_t rank) { return ~only(rank); }

/// Makes the calls and tasks of one collective.
class Exchanger {
 public:
  /// Blocks cut as `boxes` of a tensor of dtype `x`, sent to one of dtype `y`.
  Exchanger(TileContext& context, const Boxes& boxes, ir::DType x, ir::DType y, bool packets);

  /// The begin of each call's parameters; callers add the route: mode, blocks, slots.
  const functions::Exchange& base() const { return base_; }
  int64_t tiles() const { return base_.tiles; }

  /// Slots for tiles of dtype `dtype` that travel as `e` says.
  ir::BufferId slots(const std::string& suffix, const functions::Exchange& e, ir::DType dtype);
  /// The event that tells of a tile's arrival.
  ir::EventId arrival(const std::string& suffix, bool packets);

  struct Call {
    ir::CallId id;
    functions::Exchange exchange;
  };
  /// A call with room for `tasks` tasks, by default as many as there are tiles to exchange. `more`:
  /// parameters besides those of the exchange.
  Call call(const std::string& function, const functions::Exchange& e,
            std::vector<ir::BufferId> operands, std::optional<int64_t> tasks = {},
            std::vector<ir::Param> more = {});
  ir::TaskId task(const Call& call, int64_t tile, uint64_t ranks = ~uint64_t{0});
  /// Copies x's block to y's on this rank, tile by tile: from this rank's block of x if
  /// `from_block`, to this rank's block of y if `to_block`.
  void copy_own(const Mat& x, const Mat& y, bool from_block, bool to_block,
                uint64_t ranks = ~uint64_t{0});
  /// The call of such a copy, without tasks.
  Call own_copies(const Mat& x, const Mat& y, bool from_block, bool to_block);

 private:
  TileContext& c_;
  functions::Exchange base_;
};

}  // namespace maco::ops
