// Products that send their tiles themselves: where a collective's operand comes from a product on
// tensor cores, or of few rows, that puts each tile into peers' slots as it stores it, and the
// collective has the product's tiles and nothing left to put. The pass push-products decides which;
// `pushed` of both says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/functions/exchange.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

/// Whether the op says so: a collective, or the product that makes its operand.
bool is_pushed(const ir::Op& op);
/// The op that makes the collective's operand, if it is a matmul.
std::optional<ir::OpId> product_of(const ir::Graph& graph, const ir::Op& collective);
/// Whether it is an allreduce by algorithm `oneshot`: to which products of few rows send packets.
bool is_one_shot_sum(const ir::Op& collective);
/// Whether it is an allreduce by that or by `twoshot`, which exchange tiles.
bool is_sum_of_tiles(const ir::Op& collective);
/// The collective that a matmul sends its tiles to, if both say so.
std::optional<ir::OpId> pushed_to(const ir::Graph& graph, ir::OpId product);
/// Why the product can't send what the collective moves, or "". Presupposes the collective's
/// algorithm. may_mate: whether tasks of products may be mates.
std::string refuse_push(const ir::Graph& graph, const ir::Op& collective,
                        const cost::Machine& machine, bool may_mate);

/// Reports, where a collective says that it is pushed, what stands against it in any graph.
void check_pushed(InferContext& collective);

/// Whether SMs that compute had better do all that the graph communicates, and none be set aside:
/// products send something and the rest is little, or products take so much longer than the rest
/// that they would miss those SMs more than what is gained by overlap.
bool all_compute(const ir::Graph& graph);

/// How a pushed collective is cut: as its product, of mates as the halves of its tiles.
Cut pushed_cut(const TileContext& collective);

/// Of a pushed collective, where its tiles arrive: made when the product is cut into tasks, which
/// comes first.
struct Pushed {
  functions::Exchange exchange;  // of the product's tiles
  ir::BufferId slots{};
  /// By tile of a block. Where a tile has one reader, that is told of its own, too.
  std::vector<ir::EventId> arrived;
};
/// Makes slots and events; for the product's tile rule.
Pushed begin_push(TileContext& collective);
/// What begin_push has made.
Pushed pushed(TileContext& collective);

/// Whether the product that sends a pushed allreduce its operand also adds up what the ranks have
/// made of the block of rows that one owns: it begins with those of others, and ends with its own,
/// by when what it adds has come. (compiler/ops/matmul.cpp)
bool adds_up(const TileContext& collective);
/// Whether it would if the collective, an allreduce by `twoshot`, were pushed.
bool may_add_up(const TileContext& collective);
/// What it adds and sends.
struct Sums {
  functions::Exchange exchange;                // how sums travel: Others, a block's tiles
  ir::BufferId parts{}, to_all{};              // slots
  std::vector<ir::EventId> parts_of, sums_of;  // by tile of a block
};
/// Makes these tasks, of the collective.
void add_up(TileContext& collective, const Sums& sums);

/// The one-shot allgather that makes the first operand of `product`, a matmul, if one does.
std::optional<ir::OpId> gather_of(const ir::Graph& graph, const ir::Op& product);
/// Why the product, a matmul, can't begin with this rank's rows of what is gathered, while those of
/// others are on their way, or "". (compiler/ops/matmul.cpp)
std::string refuse_to_gather(const TileContext& product);

}  // namespace maco::ops
