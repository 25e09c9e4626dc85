// What the collectives share: how a tensor is cut into tiles that travel, and the slots in which
// they arrive.
//
// Peers write nothing but slots: symmetric scratch, a copy for every second launch. Three device
// functions do all of it (runtime/device/ops/collectives.cuh): `put` copies a tile into peers'
// slots, `combine` reduces the own tile with those that arrived, `take` copies an arrived tile into
// a tensor. A small tile travels as packets that carry their own flag, a large one as plain stores
// followed by one peer event a tile.
#pragma once

#include <cstdint>

#include "compiler/ops/tile.h"

namespace maco::ops {

/// Tensors of at most this many bytes travel as packets: they take twice the bytes and save a round
/// of flags.
inline constexpr int64_t kPacketBytes = 256 * 1024;

/// A block of n x cols elements cut into `down` x `across` boxes of at most BR x BC.
struct Boxes {
  ir::Expr rows;  // n, at launch
  int64_t min_rows = 1, max_rows = 1, cols = 1;
  int64_t BR = 1, BC = 1, down = 1, across = 1;
  int64_t stride = 16;  // elements of a tile in its slot
  int64_t count() const { return down * across; }
};
/// A tensor of one fixed axis as `blocks` rows, so that blocks of axis 0 are rows like those of any
/// other tensor.
Mat by_blocks(const TileContext& context, ir::TensorId tensor, int64_t blocks);
Boxes cut(const TileContext& context, const Mat& m, const ir::Expr& rows, int64_t blocks);

/// Elements of box `t` when the block starts at row `base` (a block index times n) of `m`, which
/// may be known only at launch: then the region covers all places where it may be.
ir::Region box_of(const Mat& m, const Boxes& boxes, int64_t t, int64_t block = 0);
/// The same for the block whose index is the rank that runs the task.
ir::Region own_box_of(const TileContext& context, const Mat& m, const Boxes& boxes, int64_t t);
/// True if which rows of a tensor of several blocks a box covers depends on the launch: where the
/// block begins, and where the next one does. Then writes are MayWrite.
bool moves(const Boxes& boxes);

}  // namespace maco::ops
