// Matmuls that send their tiles themselves ("push"). A collective's operand then comes from a
// matmul on tensor cores, or of few rows, that puts each tile into peers' slots as it stores it.
// The collective has the matmul's tiles, and nothing left to put. The rule `send` of `fuse` decides
// where; the attribute `pushed` of both ops says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/functions/exchange.h"
#include "compiler/ops/tile.h"

namespace maco::ops {

struct MatmulTiling;

/// Whether the op is a collective that moves its operand tile by tile as a matmul makes it, or that
/// matmul: both have the attribute `pushed`.
bool moves_as_made(const ir::Op& op);
/// Makes them so.
void move_as_made(ir::Op& product, ir::Op& collective);
/// The attribute, which only passes write.
AttrSpec as_made_attr();
/// The op that makes the collective's operand, if it is a matmul.
std::optional<ir::OpId> product_of(const ir::Graph& graph, const ir::Op& collective);
/// Whether it is an allreduce with algorithm `oneshot`, to which matmuls of few rows send packets.
bool is_one_shot_sum(const ir::Op& collective);
/// Whether it is an allreduce with `oneshot` or `twoshot`, which exchange tiles.
bool is_sum_of_tiles(const ir::Op& collective);
/// The collective to which a matmul pushes its tiles, if both ops say so.
std::optional<ir::OpId> pushed_to(const ir::Graph& graph, ir::OpId product);
/// Why the matmul can't push what the collective moves, or "". The collective's algorithm must be
/// known. may_mate: whether tasks of matmuls may be mates.
std::string refuse_push(const ir::Graph& graph, const ir::Op& collective,
                        const cost::Machine& machine, bool may_mate);

/// Reports, for a collective with `pushed`, what forbids this in any graph.
void check_as_made(InferContext& collective);

/// Whether SMs that compute should also do all of the graph's communication, and no SMs be set
/// aside. Either matmuls push something and the rest is little, or matmuls take so much longer than
/// the rest that the missing SMs would cost them more than overlap gains.
bool all_compute(const ir::Graph& graph);

/// The cut of a pushed collective: that of its matmul or, if the matmul's tasks are mates, halves
/// of its tiles.
Cut cut_as_made(const TileContext& collective);

/// Where the tiles of a pushed collective arrive. Made when the matmul is cut into tasks, which
/// comes first.
struct Arrivals {
  functions::Exchange exchange;  // of the matmul's tiles
  ir::BufferId slots{};
  /// By tile of a block. If a tile has one reader, that reader is also told of its own rank's tile.
  std::vector<ir::EventId> arrived;
};
/// The parameters of stage send, of a matmul that is cut so.
std::vector<ir::Param> send_params(const TileContext& product, const MatmulTiling& tiling,
                                   const functions::Exchange& exchange);
/// Makes slots and events, for the matmul's tile rule.
Arrivals begin_arrivals(TileContext& collective);
/// What begin_arrivals has made.
Arrivals arrivals(TileContext& collective);

/// Whether the matmul that pushes the operand of an allreduce also reduces the block of rows that
/// its rank owns. It first computes other ranks' blocks, and its own block last; by then the other
/// ranks' parts of its block have mostly arrived, and it adds them. (compiler/ops/stages/add.cpp)
bool adds_up(const TileContext& collective);
/// Whether adds_up would hold if the collective, an allreduce by `twoshot`, were pushed.
bool may_add_up(const TileContext& collective);
/// What such a matmul adds and sends.
struct Sums {
  functions::Exchange exchange;                // how sums travel: Others, with a block's tiles
  ir::BufferId parts{}, to_all{};              // slots
  std::vector<ir::EventId> parts_of, sums_of;  // by tile of a block
};
/// Makes these tasks, on behalf of the collective.
void add_up(TileContext& collective, const Sums& sums);

/// The one-shot allgather that makes the first operand of `product`, a matmul; nothing if another
/// op does.
std::optional<ir::OpId> gather_of(const ir::Graph& graph, const ir::Op& product);
/// Why the matmul can't begin with this rank's rows of a gathered operand while the other ranks'
/// rows are on their way, or "". (compiler/ops/matmul.cpp)
std::string refuse_to_gather(const TileContext& product);

}  // namespace maco::ops
